import { describe, expect, test } from 'vitest'
import { renderChat } from '#sluice/text/template.js'

const user = (content: string) => ({ role: 'user', content })
const chat = [
  { role: 'system', content: 'Be brief.' },
  user('Hi!'),
  { role: 'assistant', content: 'Hello.' },
  user('Bye "x" <b>'),
]

// Templates of the families (chatml as in Qwen 2; Llama 2's, with its raise_exception), the expected text by their documentation.
const CHATML =
  "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful assistant<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
const LLAMA2 =
  "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] | trim + ' [/INST]' }}{% else %}{{ ' ' + message['content'] | trim + ' ' + eos_token }}{% endif %}{% endfor %}"

/** Rejects with TEMPLATE_FAILED and a message that holds `text`. */
const fails = async (template: string, text: string, options = {}) =>
  expect(await renderChat(template, { messages: [user('x')], ...options }).catch((e: unknown) => e)).toMatchObject({
    code: 'TEMPLATE_FAILED',
    message: expect.stringContaining(text),
  })

describe('renders', () => {
  test('chatml, with and without the beginning of the answer', async () => {
    const body =
      '<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n' +
      '<|im_start|>user\nBye "x" <b><|im_end|>\n'
    expect(await renderChat(CHATML, { messages: chat })).toBe(`${body}<|im_start|>assistant\n`)
    expect(await renderChat(CHATML, { messages: chat, addGenerationPrompt: false })).toBe(body)
    expect(await renderChat(CHATML, { messages: [user('a')] })).toContain('You are a helpful assistant')
  })

  test("Llama 2's, with its tokens", async () => {
    const tokens = { bosToken: '<s>', eosToken: '</s>' }
    expect(await renderChat(LLAMA2, { messages: chat.slice(1), ...tokens })).toBe(
      '<s>[INST] Hi! [/INST] Hello. </s>[INST] Bye "x" <b> [/INST]',
    )
  })

  test('tools and further variables', async () => {
    const template = '{% if tools %}{{ tools | length }}{% endif %}{{ enable_thinking }}{{ messages[0].content }}'
    const request = { messages: [user('é🦊\0')], variables: { enable_thinking: false } }
    expect(await renderChat(template, { ...request, tools: [{ name: 'f' }] })).toBe('1falseé🦊\0')
    expect(await renderChat(template, request)).toBe('falseé🦊\0')
    expect(await renderChat('{{ tools is none and documents is none }}', request)).toBe('true')
  })
})

describe('refuses', () => {
  test('what the template raises', () => fails("{{ raise_exception('Only user messages') }}", 'Only user messages'))
  test('roles the template does not allow', () => fails(LLAMA2, 'must alternate', { messages: chat }))
  test('syntax errors', () => fails('{% for %}', 'chat template failed'))
  test('unknown filters', () => fails('{{ messages | frobnicate }}', 'frobnicate'))
  test('unknown statements', () => fails("{% include 'x' %}", 'include'))
  test('deep nesting', () => fails(`{{ ${'('.repeat(200_000)}1${')'.repeat(200_000)} }}`, 'chat template failed'))
  test('a template of a megabyte and more', () => fails('x'.repeat(2 ** 20 + 1), 'characters'))
  test.each([
    { messages: 'x' },
    { messages: [{}] },
    { messages: [user('x')], timeoutMs: 0 },
    { messages: [{ role: 'user', content: 1n }] },
  ])('the request %#', async (request) => {
    await expect(renderChat('x', request as never)).rejects.toMatchObject({ code: 'REQUEST_INVALID' })
  })
})

describe('a hostile template does not hurt the process', () => {
  test('a range of a hundred million', () =>
    fails('{% for a in range(100000000) %}x{% endfor %}', 'memory', { timeoutMs: 60_000 }))
  test('a text that doubles', () =>
    fails(
      '{% set ns = namespace(s="aaaaaaaa") %}{% for i in range(40) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}',
      '',
    ))
  test('a list that doubles', () =>
    fails('{% set ns = namespace(s=[1]) %}{% for i in range(40) %}{% set ns.s = ns.s + ns.s %}{% endfor %}', ''))
  test('a loop without an end', () =>
    fails('{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}', '300 ms', {
      timeoutMs: 300,
    }))
  test('cancelling ends it at once', async () => {
    const template = '{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}'
    const controller = new AbortController()
    const rendering = renderChat(template, { messages: [], signal: controller.signal, timeoutMs: 30_000 })
    setTimeout(() => controller.abort(), 200)
    const start = performance.now()
    await expect(rendering).rejects.toMatchObject({ code: 'ABORTED' })
    expect(performance.now() - start).toBeLessThan(2000)
  })
})

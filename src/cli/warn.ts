// What a person should know and the program goes on after: on stderr, so that standard output stays what was asked for.

/** One line: "sluice: warning: …", or a JSON object with --json. */
export function warn(text: string, json: boolean): void {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: texts from files: control characters are what is removed
  const clean = text.replace(/[\u0000-\u001f\u007f-\u009f]/g, '�')
  console.error(json ? JSON.stringify({ warning: clean }) : `sluice: warning: ${clean}`)
}

// Text from files on its way to a person: names may hold escape sequences that move a cursor, clear a screen or forge lines.

/** C0 and C1 controls, DEL, line separators, and the marks that reverse the direction of text. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is removed
const UNPRINTABLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g

/** The text with '�' for every character that is not shown but acts. `keep`: characters to leave, such as line feeds of a running text. */
export function printable(text: string, keep = ''): string {
  return text.replace(UNPRINTABLE, (c) => (keep.includes(c) ? c : '�'))
}

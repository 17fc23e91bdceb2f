// Names of functions where there is no room for them whole: without what templates are made of, without parameters,
// their last parts, and that cut at its end. The whole name is always told somewhere else.

/** What is between these brackets, behind a name, as an ellipsis. */
function without(name, [opening, closing]) {
  let [kept, depth, last] = ['', 0, ' ']
  for (const letter of name) {
    if (letter === opening && (depth > 0 || /[\p{L}\p{N}_:>)}]/u.test(last))) {
      if (depth++ === 0) kept += `${opening}…`
    } else if (letter === closing && last !== '-' && depth > 0) {
      if (--depth === 0) kept += closing
    } else if (depth === 0) kept += letter
    last = letter
  }
  return depth === 0 && !/operator/.test(name) ? kept : name
}

/** Names longer than this are shortened in tables, as on the terminal. */
const SHORT_MAX = 80

/** A long name without what its templates are made of. */
export function shortened(name) {
  return [...name].length <= SHORT_MAX ? name : without(name, '<>')
}

/** Columns that a letter takes: those that monospaced fonts lack take two. */
function width(letter) {
  return letter > '\u052f' ? 2 : 1
}

/** The last two parts of a path of names, and the last one: what says most. */
function ends(name) {
  const parts = []
  let [start, depth] = [0, 0]
  for (let at = 0; at < name.length; at++) {
    if ('<({['.includes(name[at])) depth++
    else if ('>)}]'.includes(name[at]) && name[at - 1] !== '-') depth--
    else if (depth === 0 && at >= start && name.startsWith('::', at)) {
      parts.push(name.slice(start, at))
      start = at + 2
    }
  }
  parts.push(name.slice(start))
  // What says nothing alone stays with the part before.
  const last = parts.findLastIndex(part => !/^([<{]|operator)/.test(part))
  return last > 0 ? [last - 1, last].map(first => parts.slice(first).join('::')) : []
}

/** As much of a name as fits into so many columns; nothing where that tells nothing. */
export function fitted(name, columns) {
  if (columns < 3) return ''
  const short = without(without(name, '<>'), '()')
  let form = name
  for (const shorter of [name, without(name, '<>'), short, ...ends(short)]) {
    form = shorter
    if (form.length * 2 <= columns || [...form].reduce((sum, one) => sum + width(one), 0) <= columns) return form
  }
  let [kept, used] = ['', 1]
  for (const letter of form) {
    used += width(letter)
    if (used > columns) break
    kept += letter
  }
  return `${kept}…`
}

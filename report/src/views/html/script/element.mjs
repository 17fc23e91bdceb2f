// Elements of the page, made without markup: what a name holds is text wherever it stands.

/** An element with attributes, `on…` handlers and children. Text is text. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on') && value) made.addEventListener(name.slice(2), value)
    else if (value === true) made.setAttribute(name, '')
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value)
  }
  made.append(...children)
  return made
}

/** A button. */
export function button(text, onclick, attributes = {}) {
  return element('button', { type: 'button', onclick, ...attributes }, text)
}

/** A select with a label; `options` are pairs of value and text. */
export function choice(label, options, chosen, onchange) {
  const select = element('select', { onchange: event => onchange(event.target.value) })
  for (const [value, text] of options) select.append(element('option', { value, selected: value === chosen }, text))
  return element('label', {}, `${label} `, select)
}

/** A checkbox with a label. */
export function toggle(label, checked, onchange) {
  const input = element('input', { type: 'checkbox', checked, onchange: event => onchange(event.target.checked) })
  return element('label', {}, input, ` ${label}`)
}

/** A menu that opens with a click on its name. */
export function menu(name, children) {
  return element('details', { class: 'menu' }, element('summary', {}, name), element('div', {}, ...children))
}

/** Makes `draw` happen once before the next frame, however often it is asked for. */
export function once(draw) {
  let asked = false
  return () => {
    if (asked) return
    asked = true
    requestAnimationFrame(() => {
      asked = false
      draw()
    })
  }
}

/** A colour and what it says; SVG has it as an attribute, which needs no style. */
export function swatch(name, colour) {
  const SVG = 'http://www.w3.org/2000/svg'
  const picture = document.createElementNS(SVG, 'svg')
  const rect = document.createElementNS(SVG, 'rect')
  for (const [key, value] of [['viewBox', '0 0 10 10'], ['class', 'swatch'], ['aria-hidden', 'true']]) {
    picture.setAttribute(key, value)
  }
  for (const [key, value] of [['width', 10], ['height', 10], ['fill', colour]]) rect.setAttribute(key, value)
  picture.append(rect)
  return [picture, ` ${name} `]
}

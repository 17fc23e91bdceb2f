{
  // Sorts and searches the table, zooms the flame graph, folds the tree; to read, nobody needs it.
  const root = document.documentElement
  const find = id => document.getElementById(id)
  root.classList.add('scripted')

  // The table. Each heading's button sorts; a second click turns the order.
  const body = document.querySelector('#top tbody')
  const rows = [...(body?.rows ?? [])].map(row => {
    const text = column => row.cells[column].textContent
    const number = column => Number(row.cells[column].dataset.sort ?? text(column))
    const name = row.cells[5]
    return {
      row,
      self: number(0),
      total: number(2),
      function: name.textContent,
      module: text(6),
      sought: `${name.textContent}\n${name.title}`.toLowerCase(),
    }
  })
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0)

  function sortBy(heading, key) {
    const before = heading.getAttribute('aria-sort')
    const first = key === 'self' || key === 'total' ? 'descending' : 'ascending'
    const other = first === 'descending' ? 'ascending' : 'descending'
    const order = before === first ? other : first
    for (const one of heading.parentNode.cells) one.removeAttribute('aria-sort')
    heading.setAttribute('aria-sort', order)
    const sign = order === 'ascending' ? 1 : -1
    // What is equal stays in the order of the file.
    const sorted = [...rows].sort((a, b) => sign * compare(a[key], b[key]))
    body.append(...sorted.map(({ row }) => row))
  }

  for (const heading of document.querySelectorAll('#top th[data-key]')) {
    const button = document.createElement('button')
    button.type = 'button'
    button.textContent = heading.textContent
    button.addEventListener('click', () => sortBy(heading, heading.dataset.key))
    heading.replaceChildren(button)
  }

  // The flame graph. Places and widths are in samples or microseconds, as inferno wrote them.
  const flame = find('flame')
  const frames = find('frames')
  const all = { from: 0, span: Number(flame?.dataset.total), depth: 0 }
  const height = flame?.viewBox.baseVal.height
  const boxes = [...(frames?.children ?? [])].map(group => {
    const [title, rect, text] = ['title', 'rect', 'text'].map(one => group.querySelector(one))
    const number = name => Number(rect.getAttribute(name))
    const whole = title.textContent
    const name = whole.replace(/ \([^(]*\)$/, '')
    const sought = name.toLowerCase()
    const [from, span, y] = [number('fg:x'), number('fg:w'), number('y')]
    return { group, rect, text, whole, name, sought, from, span, y }
  })
  const ground = boxes.find(({ whole }) => /^all \([\d,]+ (?:samples|us), 100%\)$/.test(whole))
  for (const box of boxes) box.depth = Math.abs(box.y - ground.y)
  let shown = all

  /** Pixels that a letter of the boxes takes. */
  function advance() {
    const text = boxes[0].text.cloneNode()
    text.textContent = 'M'.repeat(20)
    frames.append(text)
    const width = text.getComputedTextLength() / 20
    text.remove()
    return width || 7.3
  }

  /** As much of a name as fits; letters that monospaced fonts lack count twice. */
  function fit(name, columns) {
    if (columns < 3) return ''
    let used = 0
    let kept = ''
    for (const letter of name) {
      used += letter > '\u052f' ? 2 : 1
      if (used > columns) return `${kept.slice(0, -1)}…`
      kept += letter
    }
    return kept
  }

  function draw() {
    const width = flame?.getBoundingClientRect().width
    if (!width || boxes.length === 0) return
    flame.setAttribute('viewBox', `0 0 ${width} ${height}`)
    const letter = advance()
    const end = shown.from + shown.span
    for (const { group, rect, text, name, from, span, depth } of boxes) {
      const isCaller = depth < shown.depth && from <= shown.from && from + span >= end
      const isInside = depth >= shown.depth && from >= shown.from && from + span <= end
      group.classList.toggle('away', !isCaller && !isInside)
      group.classList.toggle('caller', isCaller)
      if (!isCaller && !isInside) continue
      const left = isCaller ? 0 : ((from - shown.from) / shown.span) * width
      const wide = isCaller ? width : (span / shown.span) * width
      rect.setAttribute('x', left)
      rect.setAttribute('width', Math.max(0, wide - 0.5))
      text.setAttribute('x', left + 3)
      text.textContent = fit(name, Math.floor((wide - 6) / letter))
    }
    find('whole').disabled = shown === all
  }

  function show(box) {
    shown = box === ground ? all : box
    draw()
  }

  const detail = find('detail')
  for (const box of boxes) {
    box.group.addEventListener('click', () => show(box))
    box.group.addEventListener('mouseenter', () => (detail.textContent = box.whole))
  }
  flame?.addEventListener('mouseleave', () => (detail.textContent = ''))
  find('whole')?.addEventListener('click', () => show(all))
  window.addEventListener('resize', draw)
  draw()

  // The search: rows without it go, boxes with it are marked.
  /** Samples of all boxes with a mark, those below one that has it counted once. */
  function share(marked) {
    const outer = [...marked].sort((a, b) => a.from - b.from || b.span - a.span)
    let [sum, end] = [0, 0]
    for (const { from, span } of outer) {
      const until = from + span
      if (until > end) [sum, end] = [sum + until - Math.max(from, end), until]
    }
    return ((sum * 100) / all.span).toFixed(1)
  }

  find('find')?.addEventListener('input', event => {
    const sought = event.target.value.trim().toLowerCase()
    const has = one => one.sought.includes(sought)
    for (const one of rows) one.row.hidden = !has(one)
    for (const one of boxes) one.group.classList.toggle('found', sought !== '' && has(one))
    const count = `${rows.filter(has).length} of ${rows.length}`
    const found = `${count}; in ${share(boxes.filter(has))}% of the flame graph`
    find('matches').textContent = sought && found
  })

  // The tree.
  const setAll = isOpen => {
    for (const one of document.querySelectorAll('.tree details')) one.open = isOpen
  }
  find('unfold')?.addEventListener('click', () => setAll(true))
  find('fold')?.addEventListener('click', () => setAll(false))
}

// The table of changes, whose rows were written with the page: the search leaves those that have what is sought, and a
// function that is picked is shown in the flame graphs.

import { button } from './element.mjs'

export class Changes {
  /** `picked` is told the number of a change. */
  constructor(table, picked) {
    this.rows = [...table.tBodies[0].rows]
    this.rows.forEach((row, number) => {
      const name = row.querySelector('bdi')
      const pick = button('', null, { class: 'name' })
      row.addEventListener('click', () => picked(number))
      name.replaceWith(pick)
      pick.append(name)
    })
  }

  /** A change in the words of its row, which a table that was too long doesn't have. */
  told(number) {
    const row = this.rows[number]
    if (!row) return 'judged; its row is left out of this page'
    const [verdict, change, interval, , , , of] = [...row.cells].map(cell => cell.textContent)
    return `${of} ${change} points, ${interval}, ${verdict}`
  }

  /** Shows the rows of the changes that `found` finds, or all; marks the one that is looked at. */
  draw(found, looked) {
    this.rows.forEach((row, number) => {
      row.hidden = !!found && !found(number)
      if (number === looked) row.setAttribute('aria-current', 'true')
      else row.removeAttribute('aria-current')
    })
    return this.rows.filter(row => !row.hidden).length
  }
}

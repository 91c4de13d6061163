// A second profile dropped on the page: span by span, with the verdicts that `hpfracc profile compare` gives.

const MOST_COMPARED = 300;

function showComparison(before, after, name) {
  const rows = compareProfiles(before, after), counts = { faster: 0, slower: 0, inconclusive: 0 };
  for (const row of rows) counts[row.verdict]++;
  put($('compare-words'), 'This profile against ' + name + ': ' + Object.entries(counts).map(([verdict, count]) => count + ' ' + verdict).join(', ') +
    '. A verdict takes medians apart by ' + RULES.ratio + 'x and ' + seconds(RULES.floor) + ', at least ' + RULES.repeats + ' repeats (top-level spans) on either side taken in turns, the quickest apart as well, and p below ' + RULES.p + ' for all spans together.');
  const head = element('tr', {}, ...['span', 'this', 'other', 'ratio', 'repeats', 'verdict', 'why'].map((text, at) => element('th', { scope: 'col', class: at > 4 ? 'left' : undefined }, text)));
  const body = rows.slice(0, MOST_COMPARED).map((row) => element('tr', {}, element('th', { scope: 'row' }, row.path.join(' › ')),
    element('td', {}, seconds(row.before)), element('td', {}, seconds(row.after)), element('td', {}, row.before && row.after !== null ? (row.after / row.before).toFixed(2) + 'x' : '-'),
    element('td', {}, row.repeats.join(' + ')), element('td', { class: 'left' }, element('span', { class: 'verdict ' + row.verdict }, row.verdict)), element('td', { class: 'why' }, row.reason)));
  put($('compare-table'), element('thead', {}, head), element('tbody', {}, ...body));
  $('compare').hidden = false;
  $('compare').scrollIntoView({ block: 'start' });
}

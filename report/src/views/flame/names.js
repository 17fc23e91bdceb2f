"use strict";
/* Instead of inferno's: of a name that doesn't fit the shorter forms are tried, and the last one is cut. */
function update_text_for_elements(elements) {
  /* All is read before anything is written: each change of mind costs a layout. */
  var texts = [];
  for (var e of elements) {
    var rect = find_child(e, "rect"), text = find_child(e, "text");
    var width = frames.attributes.width.value;
    var room = parseFloat(rect.attributes.width.value) * width / 100 - 3;
    var name = find_child(e, "title").textContent.replace(/ \([^(]*\)$/, "");
    var forms = e.attributes["fg:forms"];
    texts.push([
      text,
      format_percent(parseFloat(rect.attributes.x.value) + 100 * 3 / width),
      fitted(text, [name].concat(forms ? forms.value.split(";") : []), room),
    ]);
  }
  for (var [text, x, label] of texts) {
    text.attributes.x.value = x;
    text.textContent = label;
  }
}
function fitted(text, forms, room) {
  if (room < fontsize)
    return "";
  var fits = function(label) {
    if (known_font_width)
      return label.length * known_font_width <= room;
    text.textContent = label;
    return text.getComputedTextLength() <= room;
  };
  for (var form of forms)
    if (fits(form))
      return form;
  var letters = Array.from(form);
  var cut = function(kept) {
    return letters.slice(0, kept).join("") + "\u2026";
  };
  var least = 0, most = letters.length - 1;
  while (least < most) {
    var kept = Math.ceil((least + most) / 2);
    if (fits(cut(kept)))
      least = kept;
    else
      most = kept - 1;
  }
  return least > 1 ? cut(least) : "";
}

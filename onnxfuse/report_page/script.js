"use strict";
(() => {
  const form = document.querySelector(".filter");
  if (!form) return;
  const cards = [...document.querySelectorAll(".card")];
  const find = form.querySelector("#find");
  const boxes = [...form.querySelectorAll("input[type=checkbox]")];
  const all = form.querySelector("#all");
  const shown = form.querySelector("#shown");
  form.hidden = false;
  const filter = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const kinds = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    let count = 0;
    for (const card of cards) {
      const fits = kinds.has(card.dataset.kind) && words.every((word) => card.dataset.words.includes(word));
      card.hidden = !fits;
      count += fits;
    }
    shown.textContent = count === cards.length ? "" : `${count} of ${cards.length} shown`;
  };
  find.addEventListener("input", filter);
  boxes.forEach((box) => box.addEventListener("change", filter));
  form.addEventListener("submit", (event) => event.preventDefault());
  all.addEventListener("click", () => {
    const open = all.textContent === "Open all";
    cards.filter((card) => !card.hidden).forEach((card) => (card.open = open));
    all.textContent = open ? "Close all" : "Open all";
  });
  const reveal = () => {
    const card = document.getElementById(location.hash.slice(1));
    if (card && card.classList.contains("card")) card.open = true;
  };
  addEventListener("hashchange", reveal);
  reveal();
})();

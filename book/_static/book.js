/* Keeps pages as wide as the screen: a wide inline formula scrolls in its own box, a tooltip stays inside the window.
   Names the arrows of the sidebar, which the theme leaves to the eye. On a phone the panels of a wide picture stand below
   one another; what cannot be cut stays large enough to read and scrolls in its own box. A picture of one panel is drawn
   so narrow that it fits (gkalib/viz/style.py). */

(function () {
  "use strict";

  function fitFormulas() {
    for (const formula of document.querySelectorAll("span.math")) {
      formula.classList.remove("gk-wide");
      const box = formula.parentElement.closest("p, li, dd, td, th, figcaption, div");
      const drawn = formula.querySelector("mjx-container");
      if (box && drawn && drawn.getBoundingClientRect().width > box.clientWidth) formula.classList.add("gk-wide");
    }
  }

  function fitTip(event) {
    const number = event.target.closest && event.target.closest(".gk-res");
    const tip = number && number.querySelector(".gk-tip");
    if (!tip || getComputedStyle(tip).position === "fixed") return;
    tip.style.left = "0";
    const over = tip.getBoundingClientRect().right - document.documentElement.clientWidth + 8;
    if (over > 0) tip.style.left = -over + "px";
  }

  for (const arrow of document.querySelectorAll(".bd-sidebar summary")) {
    const page = arrow.closest("li").querySelector("a");
    arrow.setAttribute("aria-label", "Pages under " + page.textContent.trim());
  }

  for (const name of document.querySelectorAll("p.gk-tick code .pre")) { // a test's name breaks between words
    name.innerHTML = name.innerHTML.replaceAll("_", "_<wbr>");
  }

  const PHONE = window.matchMedia("(max-width: 600px)");
  const WIDE = 720, LEAST = 200, GAP = 6, TICK = 10; // pixels of a picture
  const shown = new WeakMap(); // by picture, its address as stored and as cut

  /* The picture with its panels below one another, cut where it is empty from top to bottom, or null. A panel without
     numbers left of its axis, which it shares with the first, gets the first one's. */
  function stacked(image) {
    const { naturalWidth: width, naturalHeight: height } = image, canvas = document.createElement("canvas");
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    [canvas.width, canvas.height] = [width, height];
    pen.drawImage(image, 0, 0);
    const { data } = pen.getImageData(0, 0, width, height);
    const columns = Array.from({ length: width }, (_, x) => {
      let ink = 0, dark = 0;
      for (let at = 4 * x; at < data.length; at += 4 * width) {
        const bright = data[at] + data[at + 1] + data[at + 2];
        ink += bright < 738;
        dark += bright < 200;
      }
      return { ink, axis: dark > 0.3 * height };
    });
    const edges = [0], axis = columns.some((one) => one.axis); // names left of an axis are not cut from it
    const whole = (left, right) => right - left > LEAST && (!axis || columns.slice(left, right).some((one) => one.axis));
    for (let x = 0, gap = 0; x < width; x++) {
      gap = columns[x].ink ? 0 : gap + 1;
      if (gap >= GAP && whole(edges.at(-1), x) && whole(x, width)) edges.push(x - GAP / 2);
    }
    const parts = edges.map((left, i) => {
      const right = edges[i + 1] ?? width, axis = columns.slice(left, right).findIndex((one) => one.axis);
      const bare = axis >= 0 && columns.slice(left, left + axis).filter((one) => one.ink).length < TICK;
      return { left, right, axis, bare };
    });
    if (parts.length === 1) return null;
    const strip = Math.max(0, parts[0].axis), rows = parts.map((one, i) =>
      i && one.bare ? { margin: strip, left: one.left + one.axis, right: one.right } : { margin: 0, ...one });
    canvas.width = Math.max(...rows.map((one) => one.margin + one.right - one.left));
    canvas.height = height * rows.length;
    pen.fillStyle = "#fcfcfc";
    pen.fillRect(0, 0, canvas.width, canvas.height);
    rows.forEach(({ margin, left, right }, i) => {
      if (margin) pen.drawImage(image, 0, 0, margin, height, 0, i * height, margin, height);
      pen.drawImage(image, left, 0, right - left, height, margin, i * height, right - left, height);
    });
    return canvas.toDataURL();
  }

  function fitPicture(image) {
    if (!shown.has(image)) {
      if (!PHONE.matches || image.hidden || image.naturalWidth < WIDE) return;
      shown.set(image, { stored: image.src, cut: location.protocol === "file:" ? null : stacked(image) });
    }
    const { stored, cut } = shown.get(image), source = PHONE.matches && cut ? cut : stored;
    if (image.src !== source) image.src = source;
    const large = PHONE.matches && !cut;
    image.classList.toggle("gk-large", large);
    if (large) image.parentElement.tabIndex = 0; // it scrolls
  }

  function fitPictures() {
    for (const image of document.querySelectorAll(".bd-article .cell_output img")) {
      if (image.closest(".gk-drag, .gkalib-wipe")) continue;
      if (image.complete && image.naturalWidth) fitPicture(image);
      else image.addEventListener("load", () => fitPicture(image), { once: true });
    }
  }

  window.addEventListener("load", fitPictures);
  PHONE.addEventListener("change", fitPictures);
  document.addEventListener("input", fitPictures); // a slider shows another picture
  document.addEventListener("focusin", fitTip);
  document.addEventListener("mouseover", fitTip);
  window.addEventListener("load", function () {
    const ready = window.MathJax && MathJax.startup && MathJax.startup.promise;
    if (!ready) return;
    ready.then(fitFormulas);
    window.addEventListener("resize", fitFormulas);
  });
})();

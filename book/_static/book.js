/* Keeps pages as wide as the screen: a wide inline formula scrolls in its own box, a tooltip stays inside the window.
   Names the arrows of the sidebar, which the theme leaves to the eye. */

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

  document.addEventListener("focusin", fitTip);
  document.addEventListener("mouseover", fitTip);
  window.addEventListener("load", function () {
    const ready = window.MathJax && MathJax.startup && MathJax.startup.promise;
    if (!ready) return;
    ready.then(fitFormulas);
    window.addEventListener("resize", fitFormulas);
  });
})();

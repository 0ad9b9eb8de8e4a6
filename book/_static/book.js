/* An inline formula that is wider than its line scrolls inside its own box, so that the page does not. */

(function () {
  "use strict";

  function fit() {
    for (const formula of document.querySelectorAll("span.math")) {
      formula.classList.remove("gk-wide");
      const box = formula.parentElement.closest("p, li, dd, td, th, figcaption, div");
      const drawn = formula.querySelector("mjx-container");
      if (box && drawn && drawn.getBoundingClientRect().width > box.clientWidth) formula.classList.add("gk-wide");
    }
  }

  window.addEventListener("load", function () {
    const ready = window.MathJax && MathJax.startup && MathJax.startup.promise;
    if (!ready) return;
    ready.then(fit);
    window.addEventListener("resize", fit);
  });
})();

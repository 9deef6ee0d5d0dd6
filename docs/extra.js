// The theme's search is a dialog without a name, which a screen reader needs.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");

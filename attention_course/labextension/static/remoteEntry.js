// A quiet frame around the notebooks of the course, as JupyterLab opens them: lines of about 75 characters, pictures that
// may be wider, nothing at the sides but the table of contents where there is room for it, no title above the menu.
// JupyterLab loads an extension as a module container (webpack's module federation): two functions, written by hand.

const STYLE = `
.attention-course .jp-Cell { max-width: 920px; margin: 0 auto; padding: 1px 5px; }
.attention-course .jp-CodeCell .jp-Cell-inputWrapper { max-width: 750px; }
.attention-course .jp-CodeCell.jp-Cell .jp-Cell-outputWrapper { margin: 1px 0 2px; }
.attention-course .jp-CodeCell .jp-OutputPrompt.jp-OutputArea-prompt { padding-top: 2px; padding-bottom: 0; }
.attention-course .jp-CodeCell .jp-RenderedText.jp-OutputArea-output { padding-top: 2px; }
.attention-course .jp-MarkdownOutput { max-width: 70ch; line-height: 1.45; }
.attention-course .jp-MarkdownOutput p, .attention-course .jp-MarkdownOutput ul { margin-bottom: 6px; }
.attention-course .jp-MarkdownOutput h1 { font-size: 24px; margin: 2px 0 4px; }
.attention-course .jp-MarkdownOutput h2 { font-size: 20px; margin: 8px 0 4px; }
.attention-course .jp-MarkdownOutput h3 { font-size: 16px; margin: 6px 0 2px; }
.attention-course { --jp-cell-prompt-width: 56px; }
[data-jp-theme-light="false"] .attention-course { --jp-mirror-editor-comment-color: #74b3b3; }
.attention-course .jp-MarkdownOutput pre { white-space: pre; overflow-x: auto; }
.attention-course .widget-hbox > .widget-html:has(+ .widget-hprogress) { min-width: 11em; } /* so that bars stand below each other */
.attention-course .attention-explorer { padding-left: 5px; }
.attention-course .attention-hero { margin-left: 5px; max-width: calc(100% - 5px); }
.attention-course .jp-cell-toolbar { display: none; }
.attention-course .jp-InputPlaceholder { opacity: 0.75; }
.attention-course .jp-InputPlaceholder .jp-InputPrompt { padding: 0; }
.attention-course .jp-InputPlaceholder .jp-Placeholder-content { padding: 0 6px; border: none; background: none; }
.attention-course .jp-InputPlaceholder :is(.jp-Placeholder-contentContainer, .jp-MoreHorizIcon) { height: 20px; line-height: 20px; }
.attention-course .jp-Cell:has(.attention-question, .attention-hero) .jp-InputPlaceholder { display: none; }
`;
const WIDE = 1200; // CSS pixels of a window that has room for the table of contents beside the page

// A notebook is of the course if it says so: `attention_course` in its metadata.
async function isOfTheCourse(panel) {
  await panel?.context?.ready;
  return panel?.content?.model?.getMetadata?.("attention_course") !== undefined;
}

const plugin = {
  id: "attention-course:frame",
  autoStart: true,
  activate({ shell, commands }) {
    document.head.appendChild(document.createElement("style")).textContent = STYLE;
    let first = true;
    shell.currentChanged?.connect(async (_, { newValue: panel }) => {
      if (!(await isOfTheCourse(panel))) return;
      panel.addClass("attention-course");
      if (!first) return;
      first = false;
      if (shell.isTopInSimpleModeVisible?.()) shell.toggleTopInSimpleModeVisibility();
      if (shell.isSideTabBarVisible?.("right")) shell.toggleSideTabBarVisibility("right");
      if (window.innerWidth < WIDE || !commands.hasCommand("toc:show-panel")) return;
      await commands.execute("toc:show-panel");
      shell.activateById(panel.id); // the keys stay with the notebook
    });
  },
};

(window._JUPYTERLAB ??= {})["attention-course"] = {
  init: () => {},
  get: async () => () => [plugin],
};

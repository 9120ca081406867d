// A quiet frame around the notebooks of the course, as JupyterLab opens them: lines of about 75 characters, pictures
// that do not glare in the dark theme, and the table of contents beside the page where there is room for it.
// JupyterLab loads an extension as a module container (webpack's module federation): two functions, written by hand.

const STYLE = `
.attention-course .jp-Cell { max-width: 780px; margin: 0 auto; }
.attention-course .jp-MarkdownOutput { line-height: 1.5; max-width: 75ch; }
.attention-course .jp-MarkdownOutput table { max-width: 100%; }
.attention-course .jp-InputPrompt, .attention-course .jp-OutputPrompt { min-width: 46px; flex: 0 0 46px; }
.attention-course .jp-RenderedImage img { max-width: 100%; }
.attention-course .jp-cell-toolbar { display: none; }
.attention-course .jp-Placeholder { min-height: 0; }
.attention-course .jp-Placeholder-content, .attention-course .jp-InputPlaceholder { border: none; background: none; opacity: 0.75; }
.attention-course .jp-Notebook-footer { display: none; }
[data-jp-theme-light="false"] .attention-course .jp-RenderedImage img { filter: invert(0.93) hue-rotate(180deg); }
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

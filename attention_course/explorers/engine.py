"""The engine of the explorers: controls on top, one live picture below."""

from collections.abc import Callable

import ipywidgets

from attention_course.explorers.figure import LiveFigure


class Explorer(ipywidgets.VBox):
    """Sliders above a picture that follows them.

    Each change calls `compute` with the values of all controls, by name, and `draw` with the figure and
    what `compute` returned, by name. The three parts can be tested apart, without a browser:
    `explorer.controls["t"].value = 3` moves the slider.

    Args:
        controls: see below.
        compute: turns the values of the controls into tensors and whatever else `draw` shows.
        draw: shows them.
        about: what a page without widgets says in place of the caption. For explorers of a trained model,
            whose numbers differ from machine to machine.

    Attributes:
        controls: a name for each ipywidgets control; the names are the parameters of `compute`.
        figure: the picture.

    Raises:
        Exception: what `compute` or `draw` raise for the first picture. Later the page shows what they raise.
    """

    def __init__(
        self,
        controls: dict[str, ipywidgets.ValueWidget],
        compute: Callable[..., dict[str, object]],
        draw: Callable[..., None],
        about: str = "",
    ):
        self.controls = controls
        self.figure = LiveFigure(controls=[control.model_id for control in controls.values()])
        self._compute = compute
        self._draw = draw
        self._about = about
        for control in controls.values():
            control.style.description_width = "initial"  # pyright: ignore[reportAttributeAccessIssue]
            control.observe(self._update, names="value")
        self._redraw()
        bar = ipywidgets.Box(list(controls.values()), layout={"flex_flow": "row wrap"})
        super().__init__([bar, self.figure])
        self.add_class("attention-explorer")

    def _redraw(self) -> None:
        values = {name: control.value for name, control in self.controls.items()}
        with self.figure.hold_sync():
            self.figure.settings = [
                getattr(control, "index", control.value) for control in self.controls.values()
            ]
            self._draw(self.figure, **self._compute(**values))

    def _update(self, _change: object) -> None:
        try:
            self._redraw()
        except Exception as error:
            self.figure.error = f"{type(error).__name__}: {error}"

    def __repr__(self) -> str:
        return self.figure.error or self._about or self.figure.caption

    def _repr_mimebundle_(self, **kwargs):
        still, metadata = self.figure.still()._repr_mimebundle_()
        live = super()._repr_mimebundle_(**kwargs) or {}
        return live | still | {"text/plain": repr(self)}, metadata

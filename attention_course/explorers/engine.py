"""The widget behind every explorer: controls on top, one live figure below."""

from collections.abc import Callable

import ipywidgets

from attention_course.explorers.figure import LiveFigure

WIDTH = "284px"  # of a control: two stand side by side in a window of 1024 pixels


class Explorer(ipywidgets.VBox):
    """Controls above a figure that is redrawn when they change.

    Each change calls `compute` with the values of all controls, and `draw` with the figure and the results of
    `compute`, as keyword arguments. All three can be tested without a browser:
    `explorer.controls["t"].value = 3` moves the slider.

    Args:
        controls: see below. One that is set by dragging a bar of the first picture gets no slider.
        compute: maps the values of the controls to tensors and whatever else `draw` needs.
        draw: shows them.
        about: replaces the caption on a page without widgets, for explorers of a trained model, whose numbers
            differ between machines.

    Attributes:
        controls: maps the parameters of `compute` to ipywidgets controls.
        figure: the figure.
        compute, draw: as given.

    Raises:
        Exception: raised by `compute` or `draw` for the initial values. Later errors are shown on the page.
    """

    def __init__(
        self,
        controls: dict[str, ipywidgets.ValueWidget],
        compute: Callable[..., dict[str, object]],
        draw: Callable[..., None],
        about: str = "",
    ):
        self.controls = controls
        self.figure = LiveFigure(controls={name: control.model_id for name, control in controls.items()})
        self.compute = compute
        self.draw = draw
        self._about = about
        for control in controls.values():
            control.style.description_width = "initial"  # pyright: ignore[reportAttributeAccessIssue]
            layout: ipywidgets.Layout = control.layout  # pyright: ignore[reportAttributeAccessIssue]
            layout.width = layout.width or WIDTH
            control.observe(self._update, names="value")
        self._redraw()
        dragged = {name for panel in self.figure.panels for name in getattr(panel, "controls", ())}
        beside = [control for name, control in controls.items() if name not in dragged]
        bar = ipywidgets.Box(beside, layout={"flex_flow": "row wrap"})
        super().__init__([bar, self.figure])
        self.add_class("attention-explorer")

    def _redraw(self) -> None:
        values = {name: control.value for name, control in self.controls.items()}
        with self.figure.hold_sync():
            self.figure.settings = [
                getattr(control, "index", control.value) for control in self.controls.values()
            ]
            self.draw(self.figure, **self.compute(**values))

    def _update(self, _change: object) -> None:
        try:
            self._redraw()
        except Exception as error:
            self.figure.error = f"{type(error).__name__}: {error}"

    def __repr__(self) -> str:
        return self.figure.error or self._about or self.figure.caption

    def _repr_mimebundle_(self, **kwargs):
        still = self.figure.still()._repr_mimebundle_()
        live = super()._repr_mimebundle_(**kwargs) or {}
        return live | still | {"text/plain": repr(self)}

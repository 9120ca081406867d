// A bar: half of a number.

function play(stage, { numbers }) {
  const bar = svg(stage.svg, "rect", { x: 20, y: 80, height: 40, fill: "var(--weight)" });
  let at = 0;
  const show = () => {
    bar.setAttribute("width", 50 * numbers[at]);
    stage.publish({ half: numbers[at] / 2 });
    stage.say(`Half of ${numbers[at]} is ${number(numbers[at] / 2)}.`);
  };
  stage.button("Step", () => {
    at = (at + 1) % numbers.length;
    show();
  });
  show();
}

// Connect Four, as arena/envs/batched/connect_four.py has it. Cells run from the top down.

const ROWS = 6, COLUMNS = 7, DIRECTIONS = [[0, 1], [1, 0], [1, 1], [1, -1]];

// Cells of an agent's pieces next to a cell in one direction, without the cell itself.
function inLine(cells, turn, cell, down, right) {
  let row = Math.floor(cell / COLUMNS) + down, column = (cell % COLUMNS) + right;
  const found = [];
  while (row >= 0 && row < ROWS && column >= 0 && column < COLUMNS && cells[row * COLUMNS + column] === turn) {
    found.push(row * COLUMNS + column);
    [row, column] = [row + down, column + right];
  }
  return found;
}

function pieces(cells, column) {
  return Array.from({ length: ROWS }, (_, height) => cells[(ROWS - 1 - height) * COLUMNS + column]);
}

const GAME = {
  actions: Array.from({ length: COLUMNS }, (_, column) => `column ${column + 1}`),
  sides: ["red", "yellow"],
  what: "a column",
  across: COLUMNS,
  start: () => startBoard(ROWS * COLUMNS),
  legal: ({ cells }) => cells.slice(0, COLUMNS).map((top) => top === EMPTY),
  step(position, column) {
    const row = ROWS - 1 - pieces(position.cells, column).indexOf(EMPTY), cell = row * COLUMNS + column;
    const lineOf = (cells, turn) => DIRECTIONS.map(([down, right]) =>
      [cell, ...inLine(cells, turn, cell, down, right), ...inLine(cells, turn, cell, -down, -right)])
      .find((line) => line.length >= 4);
    return withPiece(position, cell, lineOf);
  },
  observe: observeBoard,
  draw: (position) => drawBoard(position, {
    rows: ROWS, columns: COLUMNS, holes: true, names: GAME.actions.map((_, column) => column + 1),
    place: (cell) => [Math.floor(cell / COLUMNS), cell % COLUMNS],
  }),
  order: Array.from({ length: COLUMNS }, (_, column) => column),
  // With the number below it.
  spot: (column) => [100 * column, 0, 100, 100 * ROWS + 44],
  describe({ cells }, column) {
    const named = pieces(cells, column).filter((piece) => piece !== EMPTY).map((piece) => GAME.sides[piece]);
    return named.length ? `from the bottom ${named.join(", ")}` : "empty";
  },
};

// Connect Four, as arena/envs/batched/connect_four.py has it. Cells run from the top down.

const ROWS = 6, COLUMNS = 7, DIRECTIONS = [[0, 1], [1, 0], [1, 1], [1, -1]];

// Pieces of an agent next to a cell in one direction, without the cell itself.
function inLine(cells, turn, cell, down, right) {
  let row = Math.floor(cell / COLUMNS) + down, column = (cell % COLUMNS) + right, count = 0;
  while (row >= 0 && row < ROWS && column >= 0 && column < COLUMNS && cells[row * COLUMNS + column] === turn) {
    [row, column, count] = [row + down, column + right, count + 1];
  }
  return count;
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
    const isWon = (cells, turn) => DIRECTIONS.some(([down, right]) =>
      inLine(cells, turn, cell, down, right) + inLine(cells, turn, cell, -down, -right) >= 3);
    return withPiece(position, cell, isWon);
  },
  observe: observeBoard,
  draw: (position) => drawBoard(position, {
    rows: ROWS, columns: COLUMNS, holes: true, names: GAME.actions.map((_, column) => column + 1),
    place: (cell) => [Math.floor(cell / COLUMNS), cell % COLUMNS],
  }),
  order: Array.from({ length: COLUMNS }, (_, column) => column),
  spot: (column) => [100 * column, 0, 100, 100 * ROWS],
  describe({ cells }, column) {
    const named = pieces(cells, column).filter((piece) => piece !== EMPTY).map((piece) => GAME.sides[piece]);
    return named.length ? `from the bottom ${named.join(", ")}` : "empty";
  },
};

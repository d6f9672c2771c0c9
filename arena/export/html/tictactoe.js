// Tic-tac-toe, as arena/envs/batched/tictactoe.py has it. Cells run column by column.

const LINES = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]];

const place = (cell) => [cell % 3, Math.floor(cell / 3)];

const GAME = {
  actions: Array.from({ length: 9 }, (_, cell) => `row ${place(cell)[0] + 1}, column ${place(cell)[1] + 1}`),
  sides: ["cross", "ring"],
  what: "a cell",
  across: 3,
  start: () => startBoard(9),
  legal: ({ cells }) => cells.map((piece) => piece === EMPTY),
  step: (position, cell) => withPiece(position, cell, (cells, turn) =>
    LINES.find((line) => line.every((at) => cells[at] === turn))),
  observe: observeBoard,
  draw: (position) => drawBoard(position, { rows: 3, columns: 3, holes: false, names: [], place }),
  order: [0, 3, 6, 1, 4, 7, 2, 5, 8],
  spot: (cell) => [100 * place(cell)[1], 100 * place(cell)[0], 100, 100],
  describe: ({ cells }, cell) => GAME.sides[cells[cell]] || "free",
};

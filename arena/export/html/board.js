// What games of pieces on a board share: cells have -1 or the agent whose piece is there.

const EMPTY = -1;
// What the average of a hint is in.
const UNIT = ", where a win is 1 and a loss -1";

function startBoard(cells) {
  return { cells: Array(cells).fill(EMPTY), turn: 0, marked: [], outcome: null };
}

// The position after the agent on turn has a piece in a cell; lineOf: cells with which that wins.
function withPiece(position, cell, lineOf) {
  const cells = position.cells.slice(), { turn } = position;
  cells[cell] = turn;
  const line = lineOf(cells, turn), full = !cells.includes(EMPTY);
  const outcome = line ? [1 - 2 * turn, 2 * turn - 1] : full ? [0, 0] : null;
  return { cells, turn: 1 - turn, marked: line || [cell], outcome };
}

// Each cell as two numbers: a piece of the agent on turn, one of the other.
function observeBoard({ cells, turn }) {
  return cells.flatMap((piece) => [Number(piece === turn), Number(piece === 1 - turn)]);
}

// A board in squares of 100; place gives row and column of a cell.
function drawBoard({ cells, marked }, { rows, columns, holes, names, place }) {
  const { BLUE, SKY, WOOD, GRAIN, MARK } = CHAMPION.colours;
  const wall = holes ? `<rect width="${100 * columns}" height="${100 * rows}" rx="12" fill="${BLUE}"/>` : "";
  const ground = holes
    ? `<circle cx="50" cy="50" r="40" fill="${SKY}"/>`
    : `<rect width="100" height="100" fill="${WOOD}" stroke="${GRAIN}" stroke-width="2"/>`;
  const ring = `<circle cx="50" cy="50" r="46" fill="none" stroke="${holes ? "#ffffff" : MARK}" stroke-width="7"/>`;
  const drawn = cells.map((piece, cell) => {
    const [row, column] = place(cell);
    const shapes = ground + (CHAMPION.pieces[piece] || "") + (marked.includes(cell) ? ring : "");
    return `<g transform="translate(${100 * column} ${100 * row})">${shapes}</g>`;
  });
  const below = names.map((name, column) => `<text class="name" x="${100 * column + 50}" y="${100 * rows + 32}">${name}</text>`);
  return {
    width: 100 * columns,
    height: 100 * rows + (names.length ? 44 : 0),
    shapes: wall + drawn.join("") + below.join(""),
    label: "the board",
  };
}

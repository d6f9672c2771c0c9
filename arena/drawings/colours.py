"""Colours of drawings, and their font; both are told apart without colours, too."""

PAPER, INK, MARK = "#f6f8fa", "#1b1f24", "#d6336c"
BLUE, ORANGE, RED, YELLOW, GOLD = "#2f6db5", "#d9730d", "#d62f3f", "#ffd23f", "#b58900"
BLACK, WHITE, SKY = "#22262b", "#ffffff", "#dfe8f3"
WOOD, DARK_WOOD, GRAIN, KAYA = "#e9dfc9", "#b58f66", "#8a6d4b", "#e3bf7f"
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"

from support.terminal import cache as cache
from support.terminal import emulator as emulator

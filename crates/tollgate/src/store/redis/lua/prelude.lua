-- What every twin stands on. Numbers are doubles: integers up to 2^53 - 1 are exact, and nothing here leaves that range
-- unseen. Division is exact for such integers because a rounded quotient never reaches the next whole number.
--
-- A twin is one function, the same machine as in core, on the same bytes:
--
--   twin(state, now, op, cost, token, extra, mark, at)
--     -> verdict, number, remaining, reset, mark kind, mark instant, change, dies at
--
-- `state` is nil or the bytes under the key, already known to be of the twin's kind; `extra` is the instant of the mark
-- (refund) or how long to hold (reserve); `at` is where the limit's numbers begin in the batch. It reads and never writes: `change` is the state to write, or nil. State that no machine could
-- have written raises corrupt(): that Plan fails, the others of the batch do not notice.

-- Names in capitals with plain numbers are constants: they are put in where they are used before Redis sees the script,
-- because a local that a function captures costs time on every call.

local MAX = 9007199254740991
local floor, min, max = math.floor, math.min, math.max
local pack, unpack_from, byte, format = struct.pack, struct.unpack, string.byte, string.format
local call, pcall_redis, type = redis.call, redis.pcall, type
local KEYS, batch = KEYS, ARGV[1]

-- Operations, verdicts and marks, as the wire has them.
local CHARGE, PEEK, REFUND, RENEW, RELEASE, RESERVE = 0, 1, 2, 3, 4, 5
local SETTLE, CANCEL, FAILURE, SUCCESS, RESET = 6, 7, 8, 9, 10
local ADMITTED, REFUSED, NEVER, DONE = 0, 1, 2, 3
local NOT_SUPPORTED, NOT_HELD, TOO_OLD, TOKEN_IN_USE, TOO_MANY, RECOMPUTE, OVERFLOW = 10, 11, 12, 13, 14, 15, 16
local NONE, WINDOW, AT, HELD, COUNTER = 0, 1, 2, 3, 4

-- Why state is no state: its length, its version, its kind, or a number out of range.
local LENGTH, VERSION, KIND, RANGE = 1, 2, 3, 4

local function corrupt(why, where, found)
  error({ why, where, found }, 0)
end

-- The state's length in bytes must be this.
local function sized(state, expected)
  if #state ~= expected then
    corrupt(LENGTH, expected, #state)
  end
end

-- The state must reach to the end of its head.
local function headed(state, length)
  if #state < length then
    corrupt(LENGTH, length, #state)
  end
end

-- Some number of the state is too large for any machine: words `where` and after it, whichever it is.
local function exact(where, a, b, c)
  for offset, found in ipairs({ a, b, c }) do
    if found > MAX then
      corrupt(RANGE, where + offset - 1, found)
    end
  end
end

-- Word `where` must lie between `least` and `most`.
local function within(where, found, least, most)
  if found < least or found > most then
    corrupt(RANGE, where, found)
  end
end

local function ceil_div(a, b)
  local q = floor(a / b)
  if q * b < a then
    q = q + 1
  end
  return q
end

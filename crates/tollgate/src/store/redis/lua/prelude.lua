-- The beginning of every script: constants, checks of state, and arithmetic. driver.lua describes KEYS, ARGV and the
-- reply.
--
-- Numbers are doubles. Integers up to 2^53 - 1 are exact, and all code stays in that range. Division of such integers
-- is exact too, because a rounded quotient never reaches the next whole number.
--
-- Each twin is one function. It implements the same state machine as core, on the same bytes:
--
--   verdict, number, remaining, reset, mark_kind, mark_time, change, expires, new_record, record_expires, free_at =
--     twin(state, now, op, cost, token, extra, mark, numbers_at, record)
--
--   state       string or nil: the bytes under the key, already checked to be of the twin's kind
--   now         integer: microseconds since 1970, as are all times here
--   op          integer: an operation, see below
--   cost        integer: units; for a refund, those to give back; for an extension, those to add
--   token       string: 16 bytes, or '' if the operation has no token; for a refund, 8 bytes: the units charged (d)
--   extra       integer: the time of the mark (refund), or how long to hold (reserve, extend), in microseconds
--   mark        integer: the kind of the mark (refund)
--   numbers_at  integer: where the limit's numbers begin in the batch
--   record      string or false: the record under the token, for a lease or reservation
--
--   verdict     integer: see below
--   number      integer: delay (ADMITTED), time of the retry (REFUSED), units (DONE, RECORDED), time needed (RECOMPUTE),
--               units held (USED)
--   remaining   integer: units left; below 0, the units by which consumption exceeds the limit
--   reset       integer: when all units are back
--   mark_kind   integer, and mark_time: what a refund needs
--   change      string: the new state; false to delete it; nil to leave it. A log returns a table.
--   expires     integer: when the new state stops counting; nil to keep the TTL that the state has
--   new_record  string: the new record under the token; false to delete it; nil to leave it
--   record_expires  integer: when the new record has no effect any more
--   free_at     integer: when one unit fits (RECORDED), or when the units may proceed (shaper); nil if that is now
--
-- Example: fixed_window(nil, 2500000, CHARGE, 1, '', 0, NONE, n), with the numbers 5 units and 1000000 us at n, returns
-- ADMITTED, 0, 4, 3000000, WINDOW, 2000000, 32 bytes of state, 3000000.
--
-- A twin never writes. State that no state machine could have written raises corrupt(). Then that Plan fails, and the
-- other Plans of the batch are not affected.

-- A name in capitals with a plain number is a constant. script.rs replaces it by its value before Redis sees the
-- script, because a local that a function captures costs time on every call.

local math, string, struct, redis, ARGV = math, string, struct, redis, ARGV
if #ARGV ~= 1 then
  error('expected 1 argument, got ' .. #ARGV, 0)
end

local MAX = 9007199254740991
local floor, min, max = math.floor, math.min, math.max
local pack, unpack_from, byte, format = struct.pack, struct.unpack, string.byte, string.format
local call, pcall_redis, type = redis.call, redis.pcall, type
local KEYS, batch = KEYS, ARGV[1]

-- Operations, verdicts and kinds of marks, numbered as in plan_codec.rs.
local CHARGE, PEEK, REFUND, RENEW, RELEASE, RESERVE = 0, 1, 2, 3, 4, 5
local SETTLE, CANCEL, FAILURE, SUCCESS, RESET = 6, 7, 8, 9, 10
local RECORD, CREDIT, EXTEND, USAGE = 11, 12, 13, 15
local RESTORE, EXTRA, ADJUST = 16, 17, 18
local ADMITTED, REFUSED, NEVER, DONE, BOOKED_LATE, RECORDED, USED = 0, 1, 2, 3, 4, 5, 6
local NOT_SUPPORTED, NOT_HELD, TOO_OLD, TOKEN_IN_USE, TOO_MANY, RECOMPUTE, OVERFLOW = 10, 11, 12, 13, 14, 15, 16
local RECEIPT_EXPIRED, RESET_SINCE, WINDOW_CHANGED, UNVERIFIED = 17, 18, 19, 20
local NONE, WINDOW, AT, HELD, COUNTER = 0, 1, 2, 3, 4

-- Kinds of state that other files distinguish: counts and ring of a sliding window, sliding log, leases, quota, meter, and a
-- quota or meter under a stamp.
local COUNTS, LOG, RING, LEASES, QUOTA, METER, STAMPED = 2, 3, 12, 9, 10, 7, 13

-- Faults of a corrupt state: length, version, kind, or a number out of range.
local LENGTH, VERSION, KIND, RANGE = 1, 2, 3, 4

-- Fails the current Plan. For LENGTH, `expected` is a number of bytes. For RANGE, it is the index of the 8-byte word.
local function corrupt(fault, expected, found)
  error({ fault, expected, found }, 0)
end

-- Checks the length of a state in bytes.
local function check_length(state, expected)
  if #state ~= expected then
    corrupt(LENGTH, expected, #state)
  end
end

-- Checks that a state has at least `head` bytes.
local function check_head(state, head)
  if #state < head then
    corrupt(LENGTH, head, #state)
  end
end

-- Raises the error for the first of three words above MAX. `word` is the index of `a`.
local function check_exact(word, a, b, c)
  for offset, found in ipairs({ a, b, c }) do
    if found > MAX then
      corrupt(RANGE, word + offset - 1, found)
    end
  end
end

-- Checks that the word with this index is from `lowest` to `highest`.
local function check_range(word, found, lowest, highest)
  if found < lowest or found > highest then
    corrupt(RANGE, word, found)
  end
end

-- a / b, rounded up.
local function ceil_div(a, b)
  local quotient = floor(a / b)
  if quotient * b < a then
    quotient = quotient + 1
  end
  return quotient
end

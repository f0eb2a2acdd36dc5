-- Applies a batch of Plans in order, each as one atomic step on the state that the Plans before it left.
--
-- KEYS[n]  string: every key that the batch reads or writes. Keys are numbered from 1.
--
-- ARGV[1]  string, packed little-endian: d is a double; B, H and I4 are unsigned integers of 1, 2 and 4 bytes; c16 is
--          16 bytes. Times and durations are in microseconds.
--
--   B   0; 1 if all Plans are follow-ups, which must succeed while Redis is full; 2 if also the last key is a spare one,
--       which never exists
--   B   clock: 0 that of Redis, 1 the caller's within the tolerance, 2 the caller's
--   d   tolerance
--   d   margin in milliseconds: how much longer state is kept than it counts
--   H   number of Plans; then for each Plan
--
--     I4   length of this Plan in bytes, these four included
--     H    times: how often to apply it
--     d    the caller's time
--     B    number of items
--     H    key number of its request id, 0 if it has none; if it has one
--            d    how long to keep the request id
--            c16  digest of the request
--            d    attempt: 0; or n > 0, which charges one hash slot of a Plan over several; or -n, which refunds that
--            d    if the Plan gives a charge back: the time of the charge; else -1
--            H    then the key number of the last reset, else 0
--            H    length of all its answers in bytes
--     then for each item
--
--       H    key number
--       H    key number of the record of its lease or reservation, 0 if it has none
--       B    kind of the limit, as in core's state.rs
--       B    operation: 0 charge, 1 peek, 2 refund, 3 renew, 4 release, 5 reserve, 6 settle, 7 cancel, 8 failure,
--            9 success, 10 reset, 11 record, 12 credit, 13 extend, 15 usage, 16 restore, 17 extra,
--            18 adjust
--       B    flags: 1 if it blocks, plus 2 if the cost exceeds the capacity, plus 4 if the subject is anonymous, so that
--            its state is kept without the margin
--       d    cost (refund: the units to give back)
--       d    extra: the time of the mark (refund), the start of the period (record with a mark), how long to hold (reserve, extend), or how long to remember (reset)
--       B    kind of the mark (refund): 0 none, 1 window, 2 time, 3 held, 4 counter. Record: 1 if it is for one period only
--       B    length of the token, 0 or 16, and the token. Refund: 8, and the units charged (d). Reset: 2, and the key
--            number under which the reset is remembered (H). Restore, extra, adjust: as stamped.lua says.
--       B    length of the limit's numbers in bytes, and the numbers as doubles, as the twin's file lists them
--
-- Reply    string, packed. For each Plan, as many times as it was applied:
--
--   B   status: 0 decided, 1 replayed under its request id, 2 the id was used with another digest, 3 corrupt state
--   d   the time at which it was decided
--
--   Status 0 and 1, for each item, 34 bytes, or 42 for a record:
--     B   verdict: 0 admitted, 1 refused, 2 never, 3 done, 4 booked late, 5 recorded, 6 used,
--         10 not supported, 11 not held,
--         12 too old, 13 token in use, 14 too many reservations, 15 recompute, 16 overflow, 17 receipt expired,
--         18 reset since, 19 window changed, 20 unverified
--     B   kind of the mark
--     d   delay (admitted), time of the retry (refused), units (done, recorded), units held (used) or time
--         (recompute)
--     d   remaining; below 0, the units by which consumption exceeds the limit
--     d   reset
--     d   time of the mark
--     d   only for a record: when one unit fits, or when the units may proceed (shaper)
--   Then, if the Plan has an item of kind 13, 32 bytes for each item, zeros for those of other kinds:
--     d   epoch
--     d   revision
--     d   adjustments
--     d   corrections and grants in force
--   Status 3:
--     B   number of the item
--     B   fault: 1 length, 2 version, 3 kind, 4 range
--     d   expected length (length) or index of the 8-byte word (range)
--     d   found
--
-- Example: charge 1 unit to a fixed window of 5 per second (kind 1), without a request id, by the clock of Redis:
--
--   KEYS[1]  the key
--   ARGV[1]  0, 0, 0, 1000, 1       20 bytes: no follow-ups, clock, tolerance, margin, number of Plans
--            59, 1, 0, 1, 0         17 bytes: length, times, caller's time, items, no request id
--            1, 0, 1, 0, 1, 1, 0, 0, 0, 16, 5, 1000000
--                                   42 bytes: key, no record, kind, charge, blocks, cost, extra, mark, no token, numbers
--   Reply    0, 1700000000500000, 0, 1, 0, 4, 1700000001000000, 1700000000000000
--                                   43 bytes: decided, time, admitted, window mark, delay, remaining, reset, mark time
--
-- The script reads each state once, applies the Plans in memory, and writes each changed state once, after it has
-- decided the last Plan. An error before that changes nothing.

local DECIDED, REPLAYED, OTHER_CONTENT, CORRUPT = 0, 1, 2, 3
local STORE, CALLER = 0, 1
local WITH_SPARE_KEY = 2
-- The largest kind of state. Kinds 5 and 6 are retired: such state does not count.
local KIND_MAX = 13

local follow_ups, clock_mode, tolerance, margin, plan_count, at = unpack_from('<BBddH', batch, 1)
local clock
if clock_mode <= CALLER then
  local time = call('TIME')
  clock = time[1] * 1000000 + time[2]
end

-- The time of a caller whose clock is behind by the whole tolerance. State must live until it stops counting for that
-- caller too.
local slowest_now = clock and clock - tolerance

-- By key number: the state, false if there is no state; and how long a changed state must live, in microseconds, or
-- 'keep' if it keeps its TTL.
local states, lifetimes = {}, {}
-- The key numbers of anonymous subjects.
local anonymous = {}
-- The number of the item that is being decided, for the reply to a Plan with corrupt state.
local current_item

-- Reads the bytes under a key, false if it does not exist. Reads only the first 256 bytes of a log or ring.
local function read(key, kind)
  local bytes
  if kind == LOG or kind == RING then
    bytes = pcall_redis('GETRANGE', KEYS[key], 0, 255)
  else
    bytes = pcall_redis('GET', KEYS[key])
  end
  if type(bytes) == 'table' then
    if bytes.err:find('WRONGTYPE', 1, true) then
      corrupt(KIND, 0, 0)
    end
    error(bytes.err, 0)
  end
  if not bytes or bytes == '' then
    return false
  end
  if #bytes < 8 then
    corrupt(LENGTH, 8, #bytes)
  end
  local version, found = byte(bytes, 1, 2)
  if version ~= 1 then
    corrupt(VERSION, 0, version)
  end
  if found < 1 or found > KIND_MAX then
    corrupt(KIND, 0, found)
  end
  if (kind == LOG or kind == RING) and found ~= kind then
    return read(key, found)
  end
  return bytes
end

-- Returns the state of this kind under a key, or nil. State of another kind does not count: a rule whose
-- algorithm changes starts without consumption. Counts and ring of a sliding window are converted into each other; the
-- second result says so.
local function load_state(key, kind)
  local state = states[key]
  if state == nil then
    state = read(key, kind)
    states[key] = state
  end
  if not state then
    return nil
  end
  local found = type(state) == 'table' and (state.width and RING or LOG) or byte(state, 2)
  if found ~= kind then
    if kind == STAMPED and (found == QUOTA or found == METER) then
      -- The rule was not recorded before. The twin decides.
      return state
    elseif kind == RING and found == COUNTS then
      return counts_to_ring(key, state), true
    elseif kind == COUNTS and found == RING then
      return ring_to_counts(key, state), true
    end
    return nil
  end
  if (kind == LOG or kind == RING) and type(state) ~= 'table' then
    state = open_log(key, state)
    states[key] = state
  end
  return state
end

-- Returns the record of a lease or reservation, false if it does not exist.
local function load_record(key)
  local record = states[key]
  if record == nil then
    record = pcall_redis('GET', KEYS[key])
    if type(record) == 'table' then
      if record.err:find('WRONGTYPE', 1, true) then
        corrupt(KIND, 0, 0)
      end
      error(record.err, 0)
    end
    states[key] = record
  end
  return record
end

-- Keeps a new state for the following Plans and for the write at the end, and a new record, unless it is nil.
local function commit(key, kind, change, expires, now, hold, record, record_expires)
  if record ~= nil then
    states[hold] = record
    lifetimes[hold] = record_expires - (slowest_now or now)
  end
  if (kind == LOG or kind == RING) and change then
    states[key] = edit_log(load_state(key, kind), key, change)
  else
    states[key] = change
  end
  if expires then
    lifetimes[key] = expires - (slowest_now or now)
  else
    lifetimes[key] = lifetimes[key] or 'keep'
  end
end

-- Returns when a key was last reset, or nil. Takes the number of the key under which the reset is remembered.
local function last_reset(reset_key)
  local mark = states[reset_key]
  if mark == nil then
    mark = call('GET', KEYS[reset_key])
    states[reset_key] = mark
  end
  return mark and #mark == 8 and unpack_from('<d', mark) or nil
end

-- Decides an item without changing anything. Returns the six fields of its answer, whether it blocks the Plan, the new
-- state, when that expires, the state that it was decided on, the new record, when that expires, and when one unit fits
-- (record).
local function decide(now, key, hold, kind, op, flags, cost, extra, mark, token, numbers_at)
  local twin, blocks = twins[kind], flags % 2 == 1
  if op == RESET then
    -- Does not read the state, so that a corrupt one can be deleted too.
    local _, _, remaining, reset = twin(nil, now, PEEK, 0, '', 0, NONE, numbers_at)
    if token ~= '' then
      local reset_key = unpack_from('<H', token)
      -- A charge by another caller's clock may be ahead by the tolerance. A clock that steps back moves no mark back.
      local marked = clock_mode == CALLER and max(now, clock + tolerance) or now
      marked = max(marked, last_reset(reset_key) or 0)
      states[reset_key] = pack('<d', marked)
      lifetimes[reset_key] = extra + marked - now
    end
    return DONE, NONE, 0, remaining, reset, 0, false, false, now
  end
  local state, is_converted = load_state(key, kind)
  if op == REFUND and is_converted then
    local _, _, remaining, reset = twin(state, now, PEEK, 0, '', 0, NONE, numbers_at)
    return WINDOW_CHANGED, NONE, 0, remaining, reset, 0, false
  end
  if flags % 4 >= 2 then
    local _, _, remaining, reset = twin(state, now, PEEK, 0, '', 0, NONE, numbers_at)
    return NEVER, NONE, 0, remaining, reset, 0, blocks
  end
  if op == USAGE and kind ~= LEASES and kind ~= QUOTA and kind ~= STAMPED then
    -- Without leases and reservations, a record of no units says all.
    local verdict, _, remaining, reset = twin(state, now, RECORD, 0, '', 0, NONE, numbers_at)
    return verdict == RECORDED and USED or verdict, NONE, 0, remaining, reset, 0, false
  end
  local verdict, number, remaining, reset, mark_kind, mark_time, change, expires, record, record_expires, free_at =
    twin(state, now, op, cost, token, extra, mark, numbers_at, hold > 0 and load_record(hold))
  if op == PEEK then
    mark_kind, mark_time, change = NONE, 0, nil
  end
  local wants_admission = op == CHARGE or op == PEEK or op == RESERVE or op == EXTEND
  return verdict, mark_kind, number, remaining, reset, mark_time,
    blocks and wants_admission and verdict ~= ADMITTED or verdict == UNVERIFIED, change, expires, state, record, record_expires, free_at
end

-- Whether a follow-up with this verdict counts as applied, although it may have changed nothing.
local function is_applied(verdict, cost)
  return verdict == DONE or verdict == BOOKED_LATE or verdict == RECORDED and cost > 0
end

-- Charges or records one blocking item `times` times: the usual Plan. Returns what step_one returns.
local function charge(now, times, key, kind, op, cost, token, numbers_at)
  local twin, state, last_expires = twins[kind], load_state(key, kind), nil
  local answers, booked = {}, false
  for round = 1, times do
    local verdict, number, remaining, reset, mark_kind, mark_time, change, expires, _, _, free_at =
      twin(state, now, op, cost, token, 0, NONE, numbers_at)
    local answer = pack('<BdBBdddd', DECIDED, now, verdict, mark_kind, number, remaining, reset, mark_time)
    if op == RECORD then
      answer = answer .. pack('<d', free_at or now)
    end
    if kind == STAMPED then
      answer = answer .. pack('<dddd', stamp_epoch, stamp_revision, stamp_adjusted, stamp_extra)
    end
    if not change then
      -- The state did not change, so all following answers are the same.
      answers[round], booked = round < times and answer:rep(times - round + 1) or answer, is_applied(verdict, cost)
      break
    end
    state, last_expires, answers[round], booked = change, expires, answer, verdict ~= REFUSED
  end
  if last_expires then
    commit(key, kind, state, last_expires, now)
  end
  return answers[2] and table.concat(answers) or answers[1], booked
end

-- Decides and applies a Plan of one item `times` times. Returns the packed replies, and whether an admission was
-- charged.
local function step_one(now, at, _, times)
  current_item = 1
  local key, hold, kind, op, flags, cost, extra, mark, token, _, numbers_at = unpack_from('<HHBBBddBBc0B', batch, at)
  anonymous[key] = flags >= 4 or nil
  if (op == CHARGE or op == RECORD and mark == NONE) and flags % 4 == 1 and kind ~= LOG and kind ~= RING and hold == 0 then
    return charge(now, times, key, kind, op, cost, token, numbers_at)
  end
  local answers, booked = {}, false
  for round = 1, times do
    local verdict, mark_kind, number, remaining, reset, mark_time, blocked, change, expires, _, record, record_expires,
      free_at = decide(now, key, hold, kind, op, flags, cost, extra, mark, token, numbers_at)
    local answer = pack('<BdBBdddd', DECIDED, now, verdict, mark_kind, number, remaining, reset, mark_time)
    answers[round] = op == RECORD and answer .. pack('<d', free_at or now) or answer
    if kind == STAMPED then
      answers[round] = answers[round] .. pack('<dddd', stamp_epoch, stamp_revision, stamp_adjusted, stamp_extra)
    end
    if change ~= nil and (flags % 2 == 1 or verdict ~= REFUSED and verdict ~= NEVER) then
      commit(key, kind, change, expires, now, hold, record, record_expires)
      booked = not blocked
    else
      booked = is_applied(verdict, cost)
    end
  end
  return table.concat(answers), booked
end

-- Decides all items of a Plan, then charges all or none. Returns the packed reply, and whether an admission was
-- charged.
local function step_all(now, at, count)
  local items, blocked, booked, revisions = {}, false, false, nil
  for index = 1, count do
    current_item = index
    local key, hold, kind, op, flags, cost, extra, mark, token, length, numbers_at =
      unpack_from('<HHBBBddBBc0B', batch, at)
    anonymous[key] = flags >= 4 or nil
    local item = { decide(now, key, hold, kind, op, flags, cost, extra, mark, token, numbers_at) }
    item[14], item[15], item[16], item[17], item[18] = key, kind, flags % 2 == 1, numbers_at, hold
    item[19], item[20] = op, cost
    if kind == STAMPED then
      revisions = revisions or {}
      revisions[index] = pack('<dddd', stamp_epoch, stamp_revision, stamp_adjusted, stamp_extra)
    end
    at = numbers_at + length
    blocked = blocked or item[7]
    items[index] = item
  end
  for index = 1, count do
    local verdict, mark_kind, number, remaining, reset, mark_time, _, change, expires, state, record, record_expires,
      free_at, key, kind, blocks, numbers_at, hold, op, cost = unpack(items[index], 1, 20)
    local refused = verdict == REFUSED or verdict == NEVER
    if blocked and verdict == ADMITTED then
      -- Alone it would have been admitted. The answer says so, with the numbers of the state without the charge.
      mark_kind, number, mark_time = NONE, 0, 0
      _, _, remaining, reset = twins[kind](state, now, PEEK, 0, '', 0, NONE, numbers_at)
    elseif change ~= nil and (refused and blocks or not refused and not blocked) then
      commit(key, kind, change, expires, now, hold, record, record_expires)
      booked = booked or not blocked
    else
      -- A Plan that is blocked has written nothing else.
      booked = booked or not blocked and is_applied(verdict, cost)
    end
    local answer = pack('<BBdddd', verdict, mark_kind, number, remaining, reset, mark_time)
    items[index] = op == RECORD and answer .. pack('<d', free_at or now) or answer
  end
  if revisions then
    for index = 1, count do
      items[count + index] = revisions[index] or ('\0'):rep(32)
    end
  end
  return pack('<Bd', DECIDED, now) .. table.concat(items), booked
end

-- Applies a Plan of several items `times` times.
local function step(now, at, count, times)
  local answer, booked = step_all(now, at, count)
  if times == 1 then
    return answer, booked
  end
  local answers = { answer }
  for round = 2, times do
    answers[round], booked = step_all(now, at, count)
  end
  return table.concat(answers), booked
end

-- Returns what is stored under a request id: digest c16, expiry d, attempt d, then the reply without its first byte.
-- Returns nil and the length found if that is invalid. `length` is that of its answers, false if it is not to be checked.
local function stored_reply(id, digest, length)
  if id == 0 then
    return nil
  end
  local stored = states[id]
  if stored == nil then
    stored = pcall_redis('GET', KEYS[id])
    if type(stored) == 'table' then
      if stored.err:find('WRONGTYPE', 1, true) then
        return nil, 0
      end
      error(stored.err, 0)
    end
    states[id] = stored
  end
  if stored and (#stored < 32 or length and stored:sub(1, 16) == digest and #stored ~= 40 + length) then
    return nil, #stored
  end
  return stored
end

-- Returns why a receipt for a charge at this time is declined, or nil.
local function decline_receipt(charged_at, life, reset_key, now)
  if min(charged_at + life, MAX) <= now then
    return RECEIPT_EXPIRED
  end
  local reset = last_reset(reset_key)
  if reset and charged_at <= reset then
    return RESET_SINCE
  end
  return nil
end

-- Returns the reply to a Plan of one item that is declined before its twin is asked.
local function declined(now, at, verdict)
  current_item = 1
  local key, _, kind, op, _, _, _, _, _, _, numbers_at = unpack_from('<HHBBBddBBc0B', batch, at)
  local state = load_state(key, kind)
  local _, _, remaining, reset = twins[kind](state, now, PEEK, 0, '', 0, NONE, numbers_at)
  local answer = pack('<BdBBdddd', DECIDED, now, verdict, NONE, 0, remaining, reset, 0)
  answer = op == RECORD and answer .. pack('<d', now) or answer
  return kind == STAMPED and answer .. ('\0'):rep(32) or answer, false
end

local replies = {}
for index = 1, plan_count do
  local length, times, caller_now, count, id, body = unpack_from('<I4HdBH', batch, at)
  local horizon, digest, attempt, charged_at, reset_key, answers_length = 0, '', 0, -1, 0, 0
  if id > 0 then
    horizon, digest, attempt, charged_at, reset_key, answers_length, body = unpack_from('<dc16ddHH', batch, body)
  end
  at = at + length
  local now = caller_now
  if clock_mode == STORE then
    now = clock
  elseif clock_mode == CALLER then
    now = max(clock - tolerance, min(caller_now, clock + tolerance))
  end
  local stored, bad_length = stored_reply(id, digest, attempt >= 0 and answers_length)
  if stored and unpack_from('<d', stored, 17) <= now then
    stored = nil
  end
  if bad_length then
    replies[index] = pack('<BdBBdd', CORRUPT, now, 1, LENGTH, 40 + answers_length, bad_length)
  elseif attempt < 0 and not (stored and stored:sub(1, 16) == digest and unpack_from('<d', stored, 25) == -attempt) then
    -- The charge was refunded before, or another attempt builds on it.
    local answers = pack('<BBdddd', NOT_HELD, NONE, 0, 0, 0, 0):rep(count)
    replies[index] = pack('<Bd', DECIDED, now) .. answers .. ('\0'):rep(answers_length - #answers)
  elseif stored and attempt >= 0 then
    if stored:sub(1, 16) == digest then
      replies[index] = pack('<B', REPLAYED) .. stored:sub(33)
      if attempt > 0 then
        -- From now on only this attempt may refund the charge.
        states[id] = stored:sub(1, 24) .. pack('<d', attempt) .. stored:sub(33)
        lifetimes[id] = unpack_from('<d', stored, 17) - (slowest_now or now)
      end
    else
      replies[index] = pack('<Bd', OTHER_CONTENT, now)
    end
  else
    local ok, answers, booked
    local verdict = charged_at >= 0 and decline_receipt(charged_at, horizon, reset_key, now)
    if verdict then
      ok, answers, booked = pcall(declined, now, body, verdict)
    else
      ok, answers, booked = pcall(count == 1 and step_one or step, now, body, count, times)
    end
    if ok then
      replies[index] = answers
      if attempt < 0 then
        states[id] = false
        lifetimes[id] = 0
      elseif id > 0 and booked then
        -- No receipt outlives the memory of its return, even if the clock was set back since the charge.
        local expires = min(max(now, charged_at) + horizon, MAX)
        states[id] = digest .. pack('<dd', expires, attempt) .. replies[index]:sub(2)
        lifetimes[id] = expires - (slowest_now or now)
      end
    elseif type(answers) == 'table' and type(answers[1]) == 'number' then
      replies[index] = pack('<BdBBdd', CORRUPT, now, current_item, answers[1], answers[2], answers[3]):rep(times)
    else
      error(answers, 0)
    end
  end
end

-- Returns the TTL of a key in milliseconds, nil if it keeps the one that it has.
local function ttl_of(key)
  local us = lifetimes[key]
  local kept = anonymous[key] and 0 or margin
  return us ~= 'keep' and format('%.0f', max((us > 0 and ceil_div(us, 1000) or 0) + kept, 1)) or nil
end

-- Writes a changed string. Returns an error, if there is one.
local function write_string(key)
  local ttl = ttl_of(key)
  if ttl then
    return pcall_redis('SET', KEYS[key], states[key], 'PX', ttl).err
  end
  return pcall_redis('SET', KEYS[key], states[key], 'KEEPTTL').err
end

-- Makes a write that needs no memory: sets the TTL that a key is about to get, or that of the spare key, which does not
-- exist.
local function write_without_memory()
  for key = 1, #KEYS do
    local ttl = lifetimes[key] and ttl_of(key)
    if ttl then
      return call('PEXPIRE', KEYS[key], ttl)
    end
  end
  if follow_ups == WITH_SPARE_KEY then
    call('PEXPIRE', KEYS[#KEYS], 1)
  end
end

-- A full Redis refuses a command that needs memory only if it is the first write of its script.
local may_be_refused = follow_ups > 0
for key = 1, #KEYS do
  if lifetimes[key] then
    local state = states[key]
    if not state then
      call('DEL', KEYS[key])
    elseif type(state) == 'table' then
      if may_be_refused then
        write_without_memory()
      end
      write_log(state, ttl_of(key))
    else
      local refusal = write_string(key)
      if refusal and may_be_refused and refusal:find('OOM', 1, true) then
        write_without_memory()
        refusal = write_string(key)
      end
      if refusal then
        error(refusal, 0)
      end
    end
    may_be_refused = false
  end
end
return table.concat(replies)

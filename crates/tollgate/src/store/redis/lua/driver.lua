-- Carries out a batch of Plans, each as one indivisible step on the state its predecessors left.
--
-- KEYS: every key that is read or written. ARGV[1], packed: which clock, tolerance in microseconds, margin in
-- milliseconds, number of Plans; then for each Plan its length in bytes, how often it is to be carried out, the caller's
-- instant, number of items, and the place of its request id's key (0 if it has none) with horizon, digest and number of the
-- attempt; then for each item the place of its key, kind, operation, flags (1 blocks, 2 dearer than the limit could ever
-- admit), cost, extra, mark kind, token, and the limit's numbers behind their length.
--
-- Reply, packed: for each Plan, as often as it was carried out, what became of it and the instant it was decided at, and for each item verdict, mark kind,
-- number, remaining, reset, instant of the mark.
--
-- State is read once, stepped in memory and written once, after the last Plan was decided: whatever raises an error
-- before that has changed nothing.

local DECIDED, REPLAYED, OTHER_CONTENT, CORRUPT = 0, 1, 2, 3
local STORE, CALLER = 0, 1
local LOG = 3

local which, tolerance, margin, plans, at = unpack_from('<BddH', batch, 1)
local clock
if which <= CALLER then
  local time = call('TIME')
  clock = time[1] * 1000000 + time[2]
end

-- The time of a caller who is as far behind as may be: state must live until it is dead for them too.
local slowest = clock and clock - tolerance

-- By place of the key: what is under it (false if nothing), and for how long what was changed must be kept.
local held, kept_for = {}, {}
-- The item at hand, to be named if its state is corrupt.
local deciding

-- The bytes under a key: for a log only its beginning, nil if there is nothing.
local function read(place, kind)
  local bytes
  if kind == LOG then
    bytes = pcall_redis('GETRANGE', KEYS[place], 0, 255)
  else
    bytes = pcall_redis('GET', KEYS[place])
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
  if found < 1 or found > 8 then
    corrupt(KIND, 0, found)
  end
  if kind == LOG and found ~= LOG then
    return read(place, found)
  end
  return bytes
end

-- The state of this kind under a key, nil if there is none. State of another algorithm counts as none: a rule that
-- changes its algorithm starts afresh.
local function state_of(place, kind)
  local state = held[place]
  if state == nil then
    state = read(place, kind)
    held[place] = state
  end
  if not state then
    return nil
  end
  if type(state) == 'table' then
    return kind == LOG and state or nil
  end
  if byte(state, 2) ~= kind then
    return nil
  end
  if kind == LOG then
    state = open_log(place, state)
    held[place] = state
  end
  return state
end

local function commit(place, kind, change, dies, now)
  if kind == LOG and change then
    local log = held[place]
    held[place] = edit_log(type(log) == 'table' and log or nil, place, change)
  else
    held[place] = change
  end
  kept_for[place] = dies - (slowest or now)
end

-- Decides an item. Returns everything that is to be known of it: the answer's six numbers and whether it stands in the
-- Plan's way; then what to write, until when it lives, and what it was decided on.
local function decide(now, place, kind, op, flags, cost, extra, mark, token, numbers)
  local twin, blocks = twins[kind], flags % 2 == 1
  if op == RESET then
    -- Whatever lies there, also if nobody can read it.
    local _, _, remaining, reset = twin(nil, now, PEEK, 0, '', 0, NONE, numbers)
    return DONE, NONE, 0, remaining, reset, 0, false, false, now
  end
  local state = state_of(place, kind)
  if flags >= 2 then
    local _, _, remaining, reset = twin(state, now, PEEK, 0, '', 0, NONE, numbers)
    return NEVER, NONE, 0, remaining, reset, 0, blocks
  end
  local verdict, number, remaining, reset, mark_kind, mark_at, change, dies =
    twin(state, now, op, cost, token, extra, mark, numbers)
  if op == PEEK then
    mark_kind, mark_at, change = NONE, 0, nil
  end
  local asks = op == CHARGE or op == PEEK or op == RESERVE
  return verdict, mark_kind, number, remaining, reset, mark_at, blocks and asks and verdict ~= ADMITTED, change, dies,
    state
end

-- Charges one item that blocks, as often as it was sent: what most Plans are.
local function charge(now, times, place, kind, cost, token, numbers)
  local twin, state, written = twins[kind], state_of(place, kind), nil
  local answers, booked = {}, false
  for turn = 1, times do
    local verdict, number, remaining, reset, mark_kind, mark_at, change, dies =
      twin(state, now, CHARGE, cost, token, 0, NONE, numbers)
    local answer = pack('<BdBBdddd', DECIDED, now, verdict, mark_kind, number, remaining, reset, mark_at)
    if not change then
      -- Nothing changed, and so nothing will.
      answers[turn] = turn < times and answer:rep(times - turn + 1) or answer
      break
    end
    state, written, answers[turn], booked = change, dies, answer, verdict == ADMITTED
  end
  if written then
    commit(place, kind, state, written, now)
  end
  return answers[2] and table.concat(answers) or answers[1], booked
end

-- Decides a Plan of one item and carries it out, as often as it was sent. Returns the packed replies and whether an
-- admission was booked.
local function step_one(now, at, _, times)
  deciding = 1
  local place, kind, op, flags, cost, extra, mark, token, _, numbers = unpack_from('<HBBBddBBc0B', batch, at)
  if op == CHARGE and flags == 1 and kind ~= LOG then
    return charge(now, times, place, kind, cost, token, numbers)
  end
  local answers, booked = {}, false
  for turn = 1, times do
    local verdict, mark_kind, number, remaining, reset, mark_at, blocked, change, dies =
      decide(now, place, kind, op, flags, cost, extra, mark, token, numbers)
    answers[turn] = pack('<BdBBdddd', DECIDED, now, verdict, mark_kind, number, remaining, reset, mark_at)
    if change ~= nil and (flags % 2 == 1 or verdict ~= REFUSED and verdict ~= NEVER) then
      commit(place, kind, change, dies, now)
      booked = not blocked
    end
  end
  return table.concat(answers), booked
end

-- Decides all items of a Plan, then charges all or none.
local function step_all(now, at, count)
  local items, blocked, booked = {}, false, false
  for index = 1, count do
    deciding = index
    local place, kind, op, flags, cost, extra, mark, token, length, numbers = unpack_from('<HBBBddBBc0B', batch, at)
    local item = { decide(now, place, kind, op, flags, cost, extra, mark, token, numbers) }
    item[11], item[12], item[13], item[14] = place, kind, flags % 2 == 1, numbers
    at = numbers + length
    blocked = blocked or item[7]
    items[index] = item
  end
  for index = 1, count do
    local verdict, mark_kind, number, remaining, reset, mark_at, _, change, dies, state, place, kind, blocks, numbers =
      unpack(items[index], 1, 14)
    local refused = verdict == REFUSED or verdict == NEVER
    if blocked and verdict == ADMITTED then
      -- It would have been admitted on its own: it says so, with the numbers of nothing charged.
      mark_kind, number, mark_at = NONE, 0, 0
      _, _, remaining, reset = twins[kind](state, now, PEEK, 0, '', 0, NONE, numbers)
    elseif change ~= nil and (refused and blocks or not refused and not blocked) then
      commit(place, kind, change, dies, now)
      booked = booked or not blocked
    end
    items[index] = pack('<BBdddd', verdict, mark_kind, number, remaining, reset, mark_at)
  end
  return pack('<Bd', DECIDED, now) .. table.concat(items), booked
end

-- The same for a Plan that was sent several times.
local function step(now, at, count, times)
  local answer, booked = step_all(now, at, count)
  if times == 1 then
    return answer, booked
  end
  local answers = { answer }
  for turn = 2, times do
    answers[turn], booked = step_all(now, at, count)
  end
  return table.concat(answers), booked
end

-- What is remembered under a request id: its digest, until when, whose attempt it was, and the answer; or the length of
-- what cannot be read. Without a count whatever was answered is taken for an answer.
local function remembered(id, digest, count)
  if id == 0 then
    return nil
  end
  local known = held[id]
  if known == nil then
    known = pcall_redis('GET', KEYS[id])
    if type(known) == 'table' then
      if known.err:find('WRONGTYPE', 1, true) then
        return nil, 0
      end
      error(known.err, 0)
    end
    held[id] = known
  end
  if known and (#known < 32 or count and known:sub(1, 16) == digest and #known ~= 40 + 34 * count) then
    return nil, #known
  end
  return known
end

local replies = {}
for index = 1, plans do
  local length, times, asked, count, id, body = unpack_from('<I4HdBH', batch, at)
  -- An attempt to charge a Plan that spans slots has a number; below 0 it takes back what it has booked.
  local horizon, digest, attempt = 0, '', 0
  if id > 0 then
    horizon, digest, attempt, body = unpack_from('<dc16d', batch, body)
  end
  at = at + length
  local now = asked
  if which == STORE then
    now = clock
  elseif which == CALLER then
    now = max(clock - tolerance, min(asked, clock + tolerance))
  end
  local known, unreadable = remembered(id, digest, attempt >= 0 and count)
  if known and unpack_from('<d', known, 17) <= now then
    known = nil
  end
  if unreadable then
    replies[index] = pack('<BdBBdd', CORRUPT, now, 1, LENGTH, 40 + 34 * count, unreadable)
  elseif attempt < 0 and not (known and known:sub(1, 16) == digest and unpack_from('<d', known, 25) == -attempt) then
    -- It was taken back before, or another attempt builds on it.
    replies[index] = pack('<Bd', DECIDED, now) .. pack('<BBdddd', NOT_HELD, NONE, 0, 0, 0, 0):rep(count)
  elseif known and attempt >= 0 then
    if known:sub(1, 16) == digest then
      replies[index] = pack('<B', REPLAYED) .. known:sub(33)
      if attempt > 0 then
        -- Whoever booked it may not take it back any more.
        held[id] = known:sub(1, 24) .. pack('<d', attempt) .. known:sub(33)
        kept_for[id] = unpack_from('<d', known, 17) - (slowest or now)
      end
    else
      replies[index] = pack('<Bd', OTHER_CONTENT, now)
    end
  else
    local fine, answers, booked = pcall(count == 1 and step_one or step, now, body, count, times)
    if fine then
      replies[index] = answers
      if attempt < 0 then
        held[id] = false
        kept_for[id] = 0
      elseif id > 0 and booked then
        local forgotten = min(now + horizon, MAX)
        held[id] = digest .. pack('<dd', forgotten, attempt) .. replies[index]:sub(2)
        kept_for[id] = forgotten - (slowest or now)
      end
    elseif type(answers) == 'table' and type(answers[1]) == 'number' then
      replies[index] = pack('<BdBBdd', CORRUPT, now, deciding, answers[1], answers[2], answers[3]):rep(times)
    else
      error(answers, 0)
    end
  end
end

for place = 1, #KEYS do
  local us = kept_for[place]
  if us then
    local state = held[place]
    local ttl = format('%.0f', max((us > 0 and ceil_div(us, 1000) or 0) + margin, 1))
    if not state then
      call('DEL', KEYS[place])
    elseif type(state) == 'table' then
      write_log(state, ttl)
    else
      call('SET', KEYS[place], state, 'PX', ttl)
    end
  end
end
return table.concat(replies)

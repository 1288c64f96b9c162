"""The Lua scripts of redis_store.py. Redis runs each of them as one atomic unit."""

from __future__ import annotations

# KEYS meta journal snapshot seq large; ARGV format, fingerprint, how far the epoch goes on.
# Answers {epoch, 0, -1, -2 or -3; fingerprint or format held; entries there; entries due}: 0 if the
# parameters are others, -1 unless every entry behind the snapshot is there, -2 if the format is
# another (keys without one have format 1), -3 if one of the keys is gone without the others, as
# when the server evicts. In these four cases nothing has been written. Else what the writer before
# has staged and not appended is gone.
OPEN = """
local held = redis.call('HGET', KEYS[1], 'fingerprint')
local format = redis.call('HGET', KEYS[1], 'format') or (held and '1' or ARGV[1])
if format ~= ARGV[1] then return {-2, format, 0, 0} end
held = held or ARGV[2]
if held ~= ARGV[2] then return {0, held, 0, 0} end
local there = redis.call('XLEN', KEYS[2])
local position = tonumber(redis.call('HGET', KEYS[1], 'position') or 0)
if (position > 0) ~= (redis.call('EXISTS', KEYS[4]) == 1) then return {-3, '', 0, 0} end
local due = position - tonumber(redis.call('HGET', KEYS[3], 'cursor') or 0)
if there ~= due then return {-1, '', there, due} end
redis.call('HSET', KEYS[1], 'format', ARGV[1], 'fingerprint', held)
for _, list in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], 'inf', 'inf')) do
    redis.call('UNLINK', list)
end
redis.call('ZREMRANGEBYSCORE', KEYS[5], 'inf', 'inf')
return {redis.call('HINCRBY', KEYS[1], 'epoch', ARGV[3]), held, there, due}
"""

# KEYS meta journal snapshot seq large; ARGV fingerprint, how far the epoch goes on.
# Answers the fingerprint held: where it is another, nothing has been written. What stays of
# `meta` are the parameters, the epoch, so far on, and the count of duplicates.
EMPTY = """
local held = redis.call('HGET', KEYS[1], 'fingerprint') or ARGV[1]
if held ~= ARGV[1] then return held end
for _, list in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1)) do redis.call('UNLINK', list) end
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
redis.call('HDEL', KEYS[1], 'position', 'appended', 'dropped')
redis.call('HINCRBY', KEYS[1], 'epoch', ARGV[2])
return held
"""

# KEYS meta large, and the list of pieces to begin; ARGV epoch. `large` has the position of every
# list's entry, inf before it has one. Answers 0 if fenced.
STAGE = """
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
redis.call('ZADD', KEYS[2], 'inf', KEYS[3])
return redis.call('RPUSH', KEYS[3], '')
"""

# KEYS large, and a list of pieces that no entry has.
DROP = """
redis.call('ZREM', KEYS[1], KEYS[2])
return redis.call('UNLINK', KEYS[2])
"""

# KEYS journal meta seq anchors large, and lists of pieces; ARGV epoch max_entries max_bytes known,
# and of every entry: edge seq payload lineage count head check (no lineage: no anchor), and list,
# elements and size of a payload in pieces ('' and 0 of any other).
# Answers {verdict, position, last} for each; none at all if fenced; {{'lost', 0, 0}} if the last
# numbers of all edges are gone, as when the server evicts: every duplicate would be accepted; or if
# the journal stands before `known`, as when the server came back without its last entries.
# `appended` counts the payload bytes of all time; each entry keeps its value, so that a trim knows
# what it drops without reading the payloads. If the server refuses memory, it does so at the first
# XADD, when nothing has been written; a duplicate is answered all the same, only not counted. A
# list that is not whole is refused before anything is written; one that is not needed is dropped.
APPEND = """
local epoch, position, appended, dropped =
    unpack(redis.call('HMGET', KEYS[2], 'epoch', 'position', 'appended', 'dropped'))
if epoch ~= ARGV[1] then return {} end
for first = 5, #ARGV, 10 do
    local list, elements = ARGV[first + 7], tonumber(ARGV[first + 8])
    if list ~= '' and redis.call('LLEN', list) ~= elements then
        return redis.error_reply('ERR a payload has not come in whole')
    end
end
position = tonumber(position or 0)
if position < tonumber(ARGV[4]) then return {{'lost', 0, 0}} end
if position > 0 and redis.call('EXISTS', KEYS[3]) == 0 then return {{'lost', 0, 0}} end
appended, dropped = tonumber(appended or 0), tonumber(dropped or 0)
local length, again, answers = redis.call('XLEN', KEYS[1]), 0, {}
for first = 5, #ARGV, 10 do
    local edge, number, payload, lineage, count, head, check, list, _, bytes =
        unpack(ARGV, first, first + 9)
    local last, seq = tonumber(redis.call('HGET', KEYS[3], edge) or 0), tonumber(number)
    if seq <= last then
        answers[#answers + 1], again = {'duplicate', 0, last}, again + 1
    elseif length >= tonumber(ARGV[2]) or appended - dropped >= tonumber(ARGV[3]) then
        answers[#answers + 1] = {'busy', 0, last}
    else
        position, appended, length = position + 1, appended + tonumber(bytes), length + 1
        local id, size = string.format('%.0f-0', position), string.format('%.0f', appended)
        local name, value = 'payload', payload
        if list ~= '' then name, value = 'large', list end
        redis.call('XADD', KEYS[1], id, 'appended', size, 'edge', edge, 'seq', number,
            'check', check, name, value)
        if list ~= '' then redis.call('ZADD', KEYS[5], position, list) end
        redis.call('HSET', KEYS[2], 'position', string.format('%.0f', position), 'appended', size)
        redis.call('HSET', KEYS[3], edge, number)
        if lineage ~= '' then
            local held = string.match(redis.call('HGET', KEYS[4], lineage) or '', '^%d+')
            if not held or tonumber(count) > tonumber(held) then
                redis.call('HSET', KEYS[4], lineage, count .. ' ' .. head)
            end
        end
        answers[#answers + 1] = {'accepted', position, seq}
        list = ''
    end
    if list ~= '' then
        redis.call('ZREM', KEYS[5], list)
        redis.call('UNLINK', list)
    end
end
if again > 0 then redis.pcall('HINCRBY', KEYS[2], 'duplicates', again) end
return answers
"""

# KEYS journal meta snapshot large; ARGV epoch cursor state.
# Answers {saved|refused|fenced, cursor held, position}.
SAVE = """
local epoch, position = unpack(redis.call('HMGET', KEYS[2], 'epoch', 'position'))
if epoch ~= ARGV[1] then return {'fenced', 0, 0} end
local held, cursor = tonumber(redis.call('HGET', KEYS[3], 'cursor') or 0), tonumber(ARGV[2])
position = tonumber(position or 0)
if cursor < held or cursor > position then return {'refused', held, position} end
redis.call('HSET', KEYS[3], 'cursor', ARGV[2], 'state', ARGV[3])
local cut = redis.call('XREVRANGE', KEYS[1], ARGV[2], '-', 'COUNT', 1)
if cut[1] then
    redis.call('HSET', KEYS[2], 'dropped', cut[1][2][2])
    redis.call('XTRIM', KEYS[1], 'MINID', '=', string.format('%.0f', cursor + 1))
    for _, list in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', ARGV[2])) do
        redis.call('UNLINK', list)
    end
    redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', ARGV[2])
end
return {'saved', held, position}
"""

# KEYS journal meta. It is a script, as Redis refuses MULTI when its memory is full, even to read.
DEPTH = """
local appended, dropped = unpack(redis.call('HMGET', KEYS[2], 'appended', 'dropped'))
return {redis.call('XLEN', KEYS[1]), tonumber(appended or 0) - tonumber(dropped or 0)}
"""

-- Births of a session: takes or refuses a child run before it is started. One script, so each call is one atomic step.
--
-- KEYS[1]  runs that are alive, as a set sorted by the ms at which they expire
-- KEYS[2]  runs that were taken, with their depth; the run that is named as the first parent is the root
-- KEYS[3]  births by prompt
-- KEYS[4]  births of the last minute, as a set sorted by ms
--
-- ARGV[1]  born, extend, end or look      ARGV[2]  the run      ARGV[3]  its parent      ARGV[4]  hash of its prompt
-- ARGV[5]  ms until the run expires       ARGV[6]  ms for which the session is kept
-- ARGV[7]  maxSessionRuns, ARGV[8] maxConcurrentRuns, ARGV[9] maxDepth, ARGV[10] maxSpawnsPerMinute,
-- ARGV[11] maxSameChildren; empty: no limit
--
-- The only clock is that of this server.

local operation, run, parent, prompt = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local ttl_ms, keep_ms = tonumber(ARGV[5]), tonumber(ARGV[6])
local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

local function whole(number)
  return string.format("%d", number)
end

redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", whole(now))
redis.call("ZREMRANGEBYSCORE", KEYS[4], "-inf", whole(now - 60000))

if operation == "end" then
  redis.call("ZREM", KEYS[1], run)
  return {"ended", now}
end
if operation == "look" then
  return {"seen", redis.call("HLEN", KEYS[2]), redis.call("ZCARD", KEYS[1])}
end
local known = redis.call("HEXISTS", KEYS[2], run) == 1
if operation == "born" and not redis.call("ZSCORE", KEYS[1], run) then
  if redis.call("HLEN", KEYS[2]) == 0 then
    redis.call("HSET", KEYS[2], parent, 0)
  end
  local depth = (tonumber(redis.call("HGET", KEYS[2], parent)) or 0) + 1
  local same = prompt ~= "" and (tonumber(redis.call("HGET", KEYS[3], prompt)) or 0) + 1 or 0
  local counts = {
    redis.call("HLEN", KEYS[2]) + 1, redis.call("ZCARD", KEYS[1]) + 2, depth, redis.call("ZCARD", KEYS[4]) + 1, same
  }
  if known then -- it begins again: it needs room, and is no other run
    counts = {0, counts[2], 0, 0, 0}
  end
  for number, count in ipairs(counts) do
    local limit = tonumber(ARGV[6 + number])
    if limit and count > limit then
      redis.call("PEXPIRE", KEYS[2], keep_ms)
      return {"refused", number, count, limit}
    end
  end
  if not known then
    redis.call("HSET", KEYS[2], run, depth)
    redis.call("ZADD", KEYS[4], whole(now), run)
    if prompt ~= "" then
      redis.call("HINCRBY", KEYS[3], prompt, 1)
    end
  end
end
redis.call("ZADD", KEYS[1], whole(now + ttl_ms), run)
for _, key in ipairs(KEYS) do
  redis.call("PEXPIRE", key, keep_ms)
end
return {"born", redis.call("HLEN", KEYS[2]), redis.call("ZCARD", KEYS[1])}

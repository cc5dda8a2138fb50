-- Admission: whether all accounts of a payer can still pay. One script, so each call is one atomic step.
--
-- KEYS[1]            the hold: a hash of its state (held, settled, released), cost, tokens, expires
-- KEYS[2], KEYS[3]   an account: a hash of what it has spent and holds; its holds, as a set sorted by expiry
-- KEYS[4], KEYS[5]   the next account, and so on: run, session, user, tenant, as far as they are named
--
-- ARGV[1]   reserve, extend, settle, release or look
-- ARGV[2]   id of the hold
-- ARGV[3]   micro-USD; empty: unknown      ARGV[4]  tokens; empty: unknown
-- ARGV[5]   ms until the hold expires      ARGV[6]  ms that it is remembered after that, or after its end
-- then, for each account: ms that it is kept after its last use, the number of its periods, and for each of them
--   its name (total, hour, day, month), the limit of micro-USD and that of tokens; empty: none
--
-- All amounts are integers below 2^53. The clock is this server's, and it is the only one.

local operation, id = ARGV[1], ARGV[2]
local asked = {cost = tonumber(ARGV[3]), tokens = tonumber(ARGV[4])}
local ttl_ms, remember_ms = tonumber(ARGV[5]), tonumber(ARGV[6])

local UNITS = {"cost", "tokens"}
local HOUR_MS, DAY_MS = 3600000, 86400000
local NEVER = 0

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

local function whole(number)  -- tostring would write 1e+15; and 0 - x, as -0 is written "-0", which is no integer here
  return string.format("%.0f", number)
end

-- Calendar, in UTC. Years begin in March here, so that a leap day is the last of its year.

local function month_of(day)  -- days since 1970-01-01 -> months since January of the year 0
  day = day + 719468
  local era = math.floor(day / 146097)
  local of_era = day - era * 146097
  local leaps = math.floor(of_era / 1460) - math.floor(of_era / 36524) + math.floor(of_era / 146096)
  local year = math.floor((of_era - leaps) / 365)
  local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  return (era * 400 + year) * 12 + math.floor((5 * of_year + 2) / 153) + 2
end

local function first_day_of(month)  -- the inverse, for the first day of the month
  local year, march = math.floor((month - 2) / 12), (month - 2) % 12
  local leaps = math.floor(year / 4) - math.floor(year / 100) + math.floor(year / 400)
  return 365 * year + leaps + math.floor((153 * march + 2) / 5) - 719468
end

local today = math.floor(now / DAY_MS)
local window = {total = 0, hour = math.floor(now / HOUR_MS), day = today, month = month_of(today)}
local renews = {
  total = NEVER,
  hour = (window.hour + 1) * HOUR_MS,
  day = (today + 1) * DAY_MS,
  month = first_day_of(window.month + 1) * DAY_MS,
}

-- Accounts.

local function read_accounts()
  local accounts, at = {}, 7
  for key = 2, #KEYS, 2 do
    local account = {key = KEYS[key], holds = KEYS[key + 1], keep_ms = ARGV[at], periods = {}}
    local periods = tonumber(ARGV[at + 1])
    at = at + 2
    for number = 1, periods do
      account.periods[number] = {name = ARGV[at], cost = tonumber(ARGV[at + 1]), tokens = tonumber(ARGV[at + 2])}
      at = at + 3
    end
    accounts[#accounts + 1] = account
  end
  return accounts
end

local function expire(account)  -- what the dead held comes back
  local dead = redis.call("ZRANGEBYSCORE", account.holds, "-inf", whole(now))
  if #dead == 0 then
    return
  end
  local cost, tokens = 0, 0
  for _, member in ipairs(dead) do
    local of_cost, of_tokens = string.match(member, "^(%d+) (%d+) ")
    cost, tokens = cost + of_cost, tokens + of_tokens
  end
  redis.call("ZREMRANGEBYSCORE", account.holds, "-inf", whole(now))
  redis.call("HINCRBY", account.key, "held:cost", whole(0 - cost))
  redis.call("HINCRBY", account.key, "held:tokens", whole(0 - tokens))
end

local function held(account)
  local found = redis.call("HMGET", account.key, "held:cost", "held:tokens")
  return {cost = tonumber(found[1] or 0), tokens = tonumber(found[2] or 0)}
end

local function spent(account, name)  -- in the current window; a window that is over has been spent for itself
  local found = redis.call("HMGET", account.key, name, name .. ":cost", name .. ":tokens")
  if not found[1] or tonumber(found[1]) < window[name] then
    return {cost = 0, tokens = 0}
  end
  return {cost = tonumber(found[2]), tokens = tonumber(found[3])}
end

local function book(account, name, cost, tokens)
  local begun = redis.call("HGET", account.key, name)
  if not begun or tonumber(begun) < window[name] then
    redis.call("HSET", account.key, name, window[name], name .. ":cost", 0, name .. ":tokens", 0)
  end
  redis.call("HINCRBY", account.key, name .. ":cost", whole(cost))
  redis.call("HINCRBY", account.key, name .. ":tokens", whole(tokens))
end

local function keep(account)
  redis.call("PEXPIRE", account.key, account.keep_ms)
  redis.call("PEXPIRE", account.holds, account.keep_ms)
end

-- The hold.

local accounts = read_accounts()
local found = redis.call("HMGET", KEYS[1], "state", "cost", "tokens", "expires")
local hold = {state = found[1], cost = found[2], tokens = found[3], expires = tonumber(found[4])}

local function remember(state, cost, tokens, expires, for_ms)
  redis.call("HSET", KEYS[1], "state", state, "cost", cost, "tokens", tokens, "expires", whole(expires))
  redis.call("PEXPIRE", KEYS[1], whole(for_ms))
end

local function member(cost, tokens)
  return cost .. " " .. tokens .. " " .. id
end

local function later(one, other)  -- whether a window renews later; `total` never does
  return other ~= NEVER and (one == NEVER or one > other)
end

local function exceeds(unit, limit, already, reserved)
  local ask = asked[unit] or 1  -- of what nobody can estimate there has to be something left
  return limit and ask > 0 and ask > limit - already[unit] - reserved[unit]
end

-- Of the first account that refuses, the limit that does so longest: waiting for an earlier one would be in vain.
local function refusal()
  for number, account in ipairs(accounts) do
    local worst
    local reserved = held(account)
    for _, period in ipairs(account.periods) do
      local already = (period.cost or period.tokens) and spent(account, period.name)
      for _, unit in ipairs(UNITS) do
        if exceeds(unit, period[unit], already, reserved) then
          if not worst or later(renews[period.name], worst[9]) then
            worst = {
              "refused", now, number, period.name, unit,
              period[unit], already[unit], reserved[unit], renews[period.name],
            }
          end
        end
      end
    end
    if worst then
      return worst
    end
  end
end

local function reserve()
  if hold.state == "settled" then
    return {"settled", now, tonumber(hold.cost), tonumber(hold.tokens)}
  end
  if operation == "extend" and hold.state == "released" then
    return {"released", now}
  end
  local cost, tokens = whole(asked.cost or 0), whole(asked.tokens or 0)
  local live = hold.state == "held" and hold.expires > now
  if live and (hold.cost ~= cost or hold.tokens ~= tokens) then
    return {"differs", now, tonumber(hold.cost), tonumber(hold.tokens)}
  end
  for _, account in ipairs(accounts) do
    expire(account)
  end
  local refused = not live and refusal()
  if refused then
    return refused
  end
  local expires = now + ttl_ms
  for _, account in ipairs(accounts) do
    if redis.call("ZADD", account.holds, whole(expires), member(cost, tokens)) == 1 then
      redis.call("HINCRBY", account.key, "held:cost", cost)
      redis.call("HINCRBY", account.key, "held:tokens", tokens)
    end
    keep(account)
  end
  remember("held", cost, tokens, expires, ttl_ms + remember_ms)
  return {"held", now, expires}
end

local function finish(state, cost, tokens)
  if hold.state == "settled" then
    return {"settled", now, tonumber(hold.cost), tonumber(hold.tokens)}
  end
  for _, account in ipairs(accounts) do
    if hold.state and redis.call("ZREM", account.holds, member(hold.cost, hold.tokens)) == 1 then
      redis.call("HINCRBY", account.key, "held:cost", whole(0 - hold.cost))
      redis.call("HINCRBY", account.key, "held:tokens", whole(0 - hold.tokens))
    end
    for _, period in ipairs(state == "settled" and account.periods or {}) do
      book(account, period.name, cost, tokens)
    end
    keep(account)
  end
  remember(state, whole(cost), whole(tokens), now, remember_ms)
  return {state, now, cost, tokens}
end

local function look()
  local answer = {"seen", now}
  for _, account in ipairs(accounts) do
    expire(account)
    local reserved = held(account)
    answer[#answer + 1], answer[#answer + 2] = reserved.cost, reserved.tokens
    for _, period in ipairs(account.periods) do
      local already = spent(account, period.name)
      answer[#answer + 1], answer[#answer + 2] = already.cost, already.tokens
    end
  end
  return answer
end

if operation == "settle" then
  return finish("settled", asked.cost or 0, asked.tokens or 0)
elseif operation == "release" then
  return finish("released", 0, 0)
elseif operation == "look" then
  return look()
end
return reserve()

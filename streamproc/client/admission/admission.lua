-- Admission: reserves and books amounts on all accounts of a payer. One script, so each call is one atomic step.
--
-- KEYS[1]            the hold: its state (held, settled or released), cost, tokens, and when it expires
-- KEYS[2], KEYS[3]   an account: what it holds and has spent; its holds, as a set sorted by expiry
-- KEYS[4], KEYS[5]   the next account, and so on: run, session, user, tenant, those that are named
--
-- ARGV[1]   reserve, extend, settle, release or look
-- ARGV[2]   id of the hold
-- ARGV[3]   micro-USD; empty: unknown      ARGV[4]  tokens; empty: unknown
-- ARGV[5]   ms until the hold expires      ARGV[6]  ms for which it is kept after its expiry or end
-- then, for each account: ms for which it is kept after its last use, the number of its periods, and for each period
--   its name (total, hour, day, month), the limit in micro-USD and the limit in tokens; empty: no limit
--
-- All amounts are integers below 2^53. The only clock is that of this server.

local operation, id = ARGV[1], ARGV[2]
local asked = {cost = tonumber(ARGV[3]), tokens = tonumber(ARGV[4])}
local ttl_ms, remember_ms = tonumber(ARGV[5]), tonumber(ARGV[6])

local UNITS = {"cost", "tokens"}
local HOUR_MS, DAY_MS = 3600000, 86400000

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

local function whole(number)  -- tostring would write 1e+15
  return string.format("%d", number)
end

-- Calendar, in UTC. Years start in March here, which makes the leap day the last day of its year.

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
  total = 0,  -- never
  hour = (window.hour + 1) * HOUR_MS,
  day = (today + 1) * DAY_MS,
  month = first_day_of(window.month + 1) * DAY_MS,
}

-- Accounts. An account is a text in groups of four words: "held" or a period, its window, micro-USD, tokens. So one
-- command reads it, and one writes it together with its expiry.

local function read_account(key, at)
  local account = {key = KEYS[key], holds = KEYS[key + 1], keep_ms = ARGV[at], periods = {}}
  local known = {}
  for what, number, cost, tokens in string.gmatch(redis.call("GET", account.key) or "", "(%a+) (%d+) (%d+) (%d+)") do
    known[what] = {window = tonumber(number), cost = tonumber(cost), tokens = tonumber(tokens)}
  end
  account.held = known.held or {cost = 0, tokens = 0}
  for number = 1, tonumber(ARGV[at + 1]) do
    local word = at + 3 * number - 1
    local period = {name = ARGV[word], cost = tonumber(ARGV[word + 1]), tokens = tonumber(ARGV[word + 2])}
    local spent = known[period.name]
    if not spent or spent.window < window[period.name] then  -- spend of a past window does not count
      spent = {window = window[period.name], cost = 0, tokens = 0}
    end
    period.spent = spent
    account.periods[number] = period
  end
  return account, at + 2 + 3 * #account.periods
end

local function read_accounts()
  local accounts, at = {}, 7
  for key = 2, #KEYS, 2 do
    accounts[#accounts + 1], at = read_account(key, at)
  end
  return accounts
end

local function write(account)
  local words = {string.format("held 0 %d %d", account.held.cost, account.held.tokens)}
  for number, period in ipairs(account.periods) do
    local spent = period.spent
    words[number + 1] = string.format("%s %d %d %d", period.name, spent.window, spent.cost, spent.tokens)
  end
  redis.call("SET", account.key, table.concat(words, " "), "PX", account.keep_ms)
end

local function add(amounts, cost, tokens)
  amounts.cost, amounts.tokens = amounts.cost + cost, amounts.tokens + tokens
end

local function expire(account)  -- returns the amounts of expired holds
  local expired = redis.call("ZRANGEBYSCORE", account.holds, "-inf", whole(now))
  if #expired == 0 then
    return
  end
  for _, member in ipairs(expired) do
    local cost, tokens = string.match(member, "^(%d+) (%d+) ")
    add(account.held, -cost, -tokens)
  end
  redis.call("ZREMRANGEBYSCORE", account.holds, "-inf", whole(now))
  write(account)
end

-- The hold.

local accounts = read_accounts()
local hold = {}
hold.state, hold.cost, hold.tokens, hold.expires =
  string.match(redis.call("GET", KEYS[1]) or "", "^(%a+) (%d+) (%d+) (%d+)$")

local function remember(state, cost, tokens, expires, for_ms)
  local text = table.concat({state, cost, tokens, whole(expires)}, " ")
  redis.call("SET", KEYS[1], text, "PX", whole(for_ms))
end

local function member(cost, tokens)
  return cost .. " " .. tokens .. " " .. id
end

local function exceeds(unit, limit, spent, held)
  local needed = asked[unit] or 1  -- a unit without an estimate must not be exhausted
  return limit and needed > 0 and needed > limit - spent - held
end

-- The exceeded limit of an account that renews last: waiting for an earlier one would not help.
local function refusal_of(number, account)
  local worst
  for _, period in ipairs(account.periods) do
    for _, unit in ipairs(UNITS) do
      local limit, spent, held = period[unit], period.spent[unit], account.held[unit]
      if exceeds(unit, limit, spent, held) and (not worst or renews[period.name] > worst[9]) then
        worst = {"refused", now, number, period.name, unit, limit, spent, held, renews[period.name]}
      end
    end
  end
  return worst
end

local function first_refusal()
  for number, account in ipairs(accounts) do
    local refusal = refusal_of(number, account)
    if refusal then
      return refusal
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
  local live = hold.state == "held" and tonumber(hold.expires) > now
  if live and (hold.cost ~= cost or hold.tokens ~= tokens) then
    return {"differs", now, tonumber(hold.cost), tonumber(hold.tokens)}
  end
  for _, account in ipairs(accounts) do
    expire(account)
  end
  local refused = not live and first_refusal()
  if refused then
    return refused
  end
  local expires = now + ttl_ms
  for _, account in ipairs(accounts) do
    if redis.call("ZADD", account.holds, whole(expires), member(cost, tokens)) == 1 then
      add(account.held, cost, tokens)
    end
    redis.call("PEXPIRE", account.holds, account.keep_ms)
    write(account)
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
      add(account.held, -hold.cost, -hold.tokens)
    end
    for _, period in ipairs(account.periods) do
      add(period.spent, cost, tokens)
    end
    write(account)
  end
  remember(state, whole(cost), whole(tokens), now, remember_ms)
  return {state, now, cost, tokens}
end

local function look()
  local answer = {"seen", now}
  for _, account in ipairs(accounts) do
    expire(account)
    answer[#answer + 1], answer[#answer + 2] = account.held.cost, account.held.tokens
    for _, period in ipairs(account.periods) do
      answer[#answer + 1], answer[#answer + 2] = period.spent.cost, period.spent.tokens
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

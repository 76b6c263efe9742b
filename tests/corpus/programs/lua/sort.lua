-- table.sort with and without a comparison, and a heap written in Lua.
local seed = 7
local function random()
  seed = (seed * 1103515245 + 12345) % 2147483648
  return seed
end
local a, b, heap = {}, {}, {}
for i = 1, 80000 do
  a[i] = random()
  b[i] = { key = a[i] % 5000, order = i }
end
table.sort(a)
table.sort(b, function(x, y)
  if x.key ~= y.key then return x.key < y.key end
  return x.order < y.order
end)
for i = 1, 80000 do
  local value, k = a[(i * 7919) % 80000 + 1], i
  while k > 1 and heap[k // 2] > value do
    heap[k] = heap[k // 2]
    k = k // 2
  end
  heap[k] = value
end
local sum = 0
for i = 1, 80000 do sum = (sum * 31 + a[i] + b[i].order * 3 + heap[i]) % 1000000007 end
print("sort", a[1], a[80000], b[1].key, b[80000].order, heap[1], sum)

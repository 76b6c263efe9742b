-- Concatenation, formatting, patterns and a table of strings.
local parts, seed = {}, 42
for i = 1, 60000 do
  seed = (seed * 1103515245 + 12345) % 2147483648
  parts[i] = string.format("%d:%s", seed % 1000, string.rep(string.char(97 + seed % 26), 1 + seed // 1000 % 8))
end
local text = table.concat(parts, " ")
local counts, words = {}, 0
for number, word in text:gmatch("(%d+):(%a+)") do
  words = words + 1
  counts[word] = (counts[word] or 0) + tonumber(number)
end
local keys = {}
for word in pairs(counts) do keys[#keys + 1] = word end
table.sort(keys)
local sum = 0
for i, word in ipairs(keys) do sum = (sum * 31 + counts[word] * i + #word) % 1000000007 end
local swapped = text:gsub("(%d+):(%a+)", "%2=%1"):upper()
local check = 0
for i = 1, #swapped, 7 do check = (check * 33 + swapped:byte(i)) % 1000000007 end
print("strings", words, #keys, sum, #swapped, check)

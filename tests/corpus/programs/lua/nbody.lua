-- Five bodies under gravity; the energy at the end is printed to the last digit.
local sqrt = math.sqrt
local bodies = {
  { 0, 0, 0, 0, 0, 0, 39.47841760435743 },
  { 4.84143144246472090, -1.16032004402742839, -0.103622044471123109, 0.606326392995832, 2.81198684491626, -0.02521836165988763, 0.03769367487038949 },
  { 8.34336671824457987, 4.12479856412430479, -0.403523417114321381, -1.01077434617879236, 1.82566237123041186, 0.00841576137658415, 0.011286326131968767 },
  { 12.8943695621391310, -15.1111514016986312, -0.223307578892655734, 1.08279100644153536, 0.868713018169608220, -0.0108326374013636358, 0.0017237240570597112 },
  { 15.3796971148509165, -25.9193146099879641, 0.179258772950371181, 0.979090732243898, 0.594698998647676, -0.0347559555040781, 0.0020336868699246304 },
}

local function advance(dt)
  local n = #bodies
  for i = 1, n do
    local a = bodies[i]
    for j = i + 1, n do
      local b = bodies[j]
      local x, y, z = a[1] - b[1], a[2] - b[2], a[3] - b[3]
      local d2 = x * x + y * y + z * z
      local f = dt / (d2 * sqrt(d2))
      a[4], a[5], a[6] = a[4] - x * b[7] * f, a[5] - y * b[7] * f, a[6] - z * b[7] * f
      b[4], b[5], b[6] = b[4] + x * a[7] * f, b[5] + y * a[7] * f, b[6] + z * a[7] * f
    end
  end
  for i = 1, n do
    local a = bodies[i]
    a[1], a[2], a[3] = a[1] + dt * a[4], a[2] + dt * a[5], a[3] + dt * a[6]
  end
end

local function energy()
  local e = 0
  for i, a in ipairs(bodies) do
    e = e + 0.5 * a[7] * (a[4] ^ 2 + a[5] ^ 2 + a[6] ^ 2)
    for j = i + 1, #bodies do
      local b = bodies[j]
      local x, y, z = a[1] - b[1], a[2] - b[2], a[3] - b[3]
      e = e - a[7] * b[7] / sqrt(x * x + y * y + z * z)
    end
  end
  return e
end

for _ = 1, 120000 do advance(0.01) end
print("nbody", string.format("%.17g", energy()))

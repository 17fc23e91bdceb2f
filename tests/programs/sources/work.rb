# Work for an interpreter: recursion, loops, sorting, strings. It goes on until it is ended.

def waves(n)
  x = 1
  n.times { x = (x * 1_103_515_245 + 12_345) % 2_147_483_648 }
  x
end

def tree(n)
  n < 2 ? 1 : tree(n - 1) + tree(n - 2)
end

def words
  (0...4000).map { |i| (i * 7919 % 10_007).to_s }.sort
end

loop do
  waves(20_000)
  tree(18)
  words.join(' ').gsub(/(\d)\1+/, 'x')
end

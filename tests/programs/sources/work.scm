;;; Work for code that its compiler makes in memory: numbers, recursion, sorting. It goes on until it is ended.

(define (waves n)
  (let loop ((i 0) (x 1))
    (if (= i n) x (loop (+ i 1) (modulo (+ (* x 1103515245) 12345) 2147483648)))))

(define (tree n)
  (if (< n 2) 1 (+ (tree (- n 1)) (tree (- n 2)))))

(define (words)
  (sort (map (lambda (i) (number->string (modulo (* i 7919) 10007))) (iota 3000)) string<?))

(let main ()
  (waves 100000)
  (tree 22)
  (words)
  (main))

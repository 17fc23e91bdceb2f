;;; Work for code that its compiler makes in memory: floats, recursion, sorting. It goes on until it is ended.

(defun waves (n)
  (let ((sum 0d0))
    (declare (double-float sum))
    (dotimes (i n sum)
      (incf sum (sin (* i 0.001d0))))))

(defun tree (n)
  (if (< n 2) 1 (+ (tree (- n 1)) (tree (- n 2)))))

(defun words ()
  (sort (loop for i below 3000 collect (princ-to-string (mod (* i 7919) 10007))) #'string<))

(defun main ()
  (loop
    (waves 100000)
    (tree 22)
    (words)))

(main)

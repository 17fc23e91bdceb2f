// Three functions whose shares of the processor time it tells itself, and a goroutine that has work for the
// collector.
package main

import (
	"fmt"
	"hash/crc64"
	"runtime"
	"sort"
	"syscall"
	"unsafe"
)

var sink uint64

//go:noinline
func alpha(x uint64) uint64 {
	for i := 0; i < 500000; i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

//go:noinline
func beta(numbers, room []int) int {
	copy(room, numbers)
	sort.Ints(room)
	return room[0]
}

var table = crc64.MakeTable(crc64.ECMA)

//go:noinline
func gamma(bytes []byte) uint64 {
	return crc64.Checksum(bytes, table)
}

//go:noinline
func outer(numbers, room []int, bytes []byte, taken *[3]float64) {
	a := now()
	sink += alpha(sink + 1)
	b := now()
	sink += uint64(beta(numbers, room))
	c := now()
	sink += gamma(bytes)
	d := now()
	taken[0] += b - a
	taken[1] += c - b
	taken[2] += d - c
}

// Seconds of processor time of this thread: a clock, as getrusage moves by ticks only.
func now() float64 {
	const threadCPU = 3
	var time syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadCPU, uintptr(unsafe.Pointer(&time)), 0)
	return float64(time.Sec) + float64(time.Nsec)/1e9
}

func litter() {
	for {
		seen := map[int]string{}
		for i := 0; i < 3000; i++ {
			seen[i*7919] = fmt.Sprint(i)
		}
	}
}

func main() {
	go litter()
	runtime.LockOSThread()
	numbers, room := make([]int, 4000), make([]int, 4000)
	for i := range numbers {
		numbers[i] = i * 7919 % 10007
	}
	bytes := make([]byte, 1<<20)
	var taken [3]float64
	told := now()
	for {
		outer(numbers, room, bytes, &taken)
		if now() > told+0.2 {
			told = now()
			fmt.Printf("main.alpha %.4f main.beta %.4f main.gamma %.4f\n", taken[0], taken[1], taken[2])
		}
	}
}

/** Three functions whose shares of the processor time it tells itself. */
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Arrays;
import java.util.HashMap;

final class Shares {
    static long sink = 1;
    static final ThreadMXBean CLOCK = ManagementFactory.getThreadMXBean();

    static long alpha(long x) {
        for (int i = 0; i < 500_000; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static int beta(String[] words) {
        String[] copied = words.clone();
        Arrays.sort(copied);
        return copied.length;
    }

    static int gamma(int keys) {
        HashMap<Integer, String> seen = new HashMap<>();
        for (int i = 0; i < keys; i++) seen.put(i * 7919, Integer.toString(i));
        return seen.size();
    }

    static void outer(String[] words, long[] taken) {
        long a = CLOCK.getCurrentThreadCpuTime();
        sink += alpha(sink + 1);
        long b = CLOCK.getCurrentThreadCpuTime();
        sink += beta(words);
        long c = CLOCK.getCurrentThreadCpuTime();
        sink += gamma(20_000);
        long d = CLOCK.getCurrentThreadCpuTime();
        taken[0] += b - a;
        taken[1] += c - b;
        taken[2] += d - c;
    }

    public static void main(String[] unused) {
        String[] words = new String[5000];
        for (int i = 0; i < words.length; i++) words[i] = Integer.toString(i * 7919 % 10007);
        long[] taken = new long[3];
        long told = System.nanoTime();
        while (true) {
            outer(words, taken);
            if (System.nanoTime() - told > 200_000_000) {
                told = System.nanoTime();
                System.out.printf("alpha %.4f beta %.4f gamma %.4f%n", taken[0] / 1e9, taken[1] / 1e9, taken[2] / 1e9);
            }
        }
    }
}

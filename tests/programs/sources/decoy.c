/* What lies at the path of another program, outside its container: as large, other names. */
__attribute__((noinline)) int wrong_one(int x) { return x * 3 + 1; }
__attribute__((noinline)) int wrong_two(int x) { return x * 5 + 1; }
__attribute__((noinline)) int wrong_three(int x) { return x * 7 + 1; }
static char room[8192] = {1};
int main(int count, char **words)
{
    int x = count;
    for (int i = 0; i < 1000; i++)
        x = wrong_one(x) + wrong_two(x) + wrong_three(x) + room[i] + (words != 0);
    return x == 42;
}

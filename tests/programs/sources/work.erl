%% Work in two processes: arithmetic, sorting, recursion. They go on until the program is ended.
-module(work).
-export([main/0]).

alpha(0, X) -> X;
alpha(N, X) -> alpha(N - 1, (X * 1103515245 + 12345) rem 2147483648).

beta(Words) -> length(lists:sort(Words)).

gamma(N) when N < 2 -> 1;
gamma(N) -> gamma(N - 1) + gamma(N - 2).

outer(Words) ->
    alpha(200000, 1),
    beta(Words),
    gamma(20),
    outer(Words).

main() ->
    Words = [integer_to_list(N * 7919 rem 10007) || N <- lists:seq(0, 4999)],
    spawn(fun() -> outer(Words) end),
    outer(Words).

// Much for a compiler to do.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

template <int N> struct Tree {
    std::map<int, std::string> names;
    std::unordered_map<std::string, std::vector<int>> places;
    Tree<N - 1> below;
    int walk(int x)
    {
        names[x % (N + 7)] += std::to_string(x);
        places[names[x % (N + 7)]].push_back(x);
        std::sort(places.begin()->second.begin(), places.begin()->second.end(),
                  [](int a, int b) { return a % N < b % N; });
        return below.walk(x + N);
    }
};
template <> struct Tree<0> {
    int walk(int x) { return x; }
};

int main(int count, char **words)
{
    std::variant<int, std::string, std::vector<double>> any = count;
    std::regex shape("([a-z]+)-([0-9]+)");
    std::smatch found;
    std::string text = words[0];
    if (std::regex_search(text, found, shape))
        any = found[1].str();
    Tree<5> tree;
    std::cout << tree.walk(static_cast<int>(any.index())) << '\n';
}

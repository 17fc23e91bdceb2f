// C++ for an unwinder: virtual calls, templates, lambdas behind std::function, containers, and
// exceptions, whose landing pads and personality routines have rules of their own.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

static volatile unsigned long sink;

struct Shape {
    virtual ~Shape() = default;
    virtual double area(double scale) const = 0;
};

struct Square : Shape {
    double side;
    explicit Square(double s) : side(s) {}
    [[gnu::noinline]] double area(double scale) const override { return side * side * scale; }
};

struct Group : Shape {
    std::vector<std::unique_ptr<Shape>> parts;
    [[gnu::noinline]] double area(double scale) const override {
        double sum = 0;
        for (const auto &part : parts)
            sum += part->area(scale);
        return sum;
    }
};

template <typename T> [[gnu::noinline]] T deep(T value, unsigned depth) {
    if (depth == 0) {
        if (static_cast<unsigned long>(value) % 3 == 0)
            throw std::runtime_error("bottom " + std::to_string(value));
        return value;
    }
    std::string guard(depth, 'x');
    return deep(value + static_cast<T>(guard.size()), depth - 1) + 1;
}

[[gnu::noinline]] static unsigned long counted(unsigned long round) {
    std::map<std::string, unsigned long> counts;
    std::function<void(unsigned long)> add = [&](unsigned long x) {
        counts["key" + std::to_string(x % 7)] += x;
    };
    for (unsigned long i = 0; i < 5; i++)
        add(round * i);
    unsigned long sum = 0;
    for (const auto &entry : counts)
        sum += entry.second;
    return sum;
}

int main() {
    for (unsigned long round = 0;; round++) {
        Group group;
        for (int i = 0; i < 4; i++)
            group.parts.push_back(std::make_unique<Square>(i + round % 10));
        sink += static_cast<unsigned long>(group.area(2));
        try {
            sink += deep<unsigned long>(round, 24);
        } catch (const std::exception &error) {
            sink += std::string(error.what()).size();
        }
        sink += counted(round);
        std::vector<double> values{3, 1, 2, double(round % 5)};
        std::sort(values.begin(), values.end(), [](double a, double b) { return a > b; });
        sink += static_cast<unsigned long>(values[0]);
    }
}

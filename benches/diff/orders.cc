// A C++ program for benches/diff.py: orders are parsed, looked up, priced, sorted and written.
// usage: orders ROUNDS SLOWER: prices SLOWER percent more often than once an order.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#define APART __attribute__((noinline))

struct Order {
    std::string customer, article;
    unsigned amount = 0;
    double price = 0;
};
using Orders = std::vector<std::shared_ptr<Order>>;

static std::unordered_map<std::string, double> articles;
static std::map<std::string, double> discounts;
static uint64_t state = 88172645463325252;

static uint64_t draw() {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

APART static void stock() {
    for (unsigned number = 0; number < 6000; number++) {
        articles["article-" + std::to_string(number)] = 1 + number % 97;
        discounts["customer-" + std::to_string(number)] = number % 13 / 100.0;
    }
}

APART static std::string receive() {
    std::ostringstream text;
    for (int line = 0; line < 120; line++)
        text << "customer-" << draw() % 6000 << " article-" << draw() % 6000 << ' ' << draw() % 99 + 1 << '\n';
    return text.str();
}

APART static Orders parse(const std::string &text) {
    std::istringstream in(text);
    Orders orders;
    auto order = std::make_shared<Order>();
    while (in >> order->customer >> order->article >> order->amount) {
        orders.push_back(order);
        order = std::make_shared<Order>();
    }
    return orders;
}

APART static double discount(const Order &order) {
    auto found = discounts.find(order.customer);
    return found == discounts.end() ? 0 : found->second;
}

APART static double round_up(double price) {
    double cents = 0;
    for (int step = 0; step < 35; step++) cents = (cents + price * 100) / (1 + 0.01 * step);
    return cents;
}

APART static void price(Order &order) {
    double one = articles[order.article];
    order.price = round_up(one * order.amount * (1 - discount(order)));
}

APART static void arrange(Orders &orders) {
    std::sort(orders.begin(), orders.end(), [](const auto &one, const auto &other) {
        return one->customer != other->customer ? one->customer < other->customer
                                                : one->price > other->price;
    });
}

APART static size_t write(const Orders &orders) {
    std::string text;
    char line[160];
    for (const auto &order : orders) {
        snprintf(line, sizeof line, "%s;%s;%u;%.2f\n", order->customer.c_str(), order->article.c_str(),
                 order->amount, order->price);
        text += line;
    }
    return text.size();
}

int main(int count, char **words) {
    if (count != 3) return fprintf(stderr, "usage: orders ROUNDS SLOWER\n"), 2;
    long rounds = atol(words[1]), slower = atol(words[2]), owed = 0;
    size_t written = 0;
    stock();
    while (rounds-- > 0) {
        Orders orders = parse(receive());
        // Every second one, and those that are due beyond.
        for (size_t order = 0; order < orders.size(); order += 2) price(*orders[order]);
        for (owed += slower * orders.size() / 2; owed >= 100; owed -= 100)
            price(*orders[owed / 100 % orders.size()]);
        arrange(orders);
        written += write(orders);
    }
    printf("%zu\n", written);
}

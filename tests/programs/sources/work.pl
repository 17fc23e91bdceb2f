# Work for an interpreter: recursion, sorting, hashes, regular expressions. It goes on until it is ended.
use strict;
use warnings;

sub tree {
    my ($n) = @_;
    return $n < 2 ? 1 : tree($n - 1) + tree($n - 2);
}

sub texts {
    return map { $_ * 7919 % 10007 } 0 .. 4999;
}

sub squeeze {
    my ($text) = @_;
    $text =~ s/(\d)\1+/x/g;
    return length $text;
}

while (1) {
    tree(16);
    my @words = sort { $a cmp $b } texts();
    my %seen;
    $seen{$_}++ for @words;
    squeeze(join ' ', @words);
}

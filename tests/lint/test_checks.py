#!/usr/bin/env python3
"""Tests of the lint checks: the reader of C++ sources and the rules of words.txt."""
import unittest

import check_language
import cpp_source

SOURCE = r'''
#include "tessera/core/error.hpp"
#include <vector>
/* int commented(int a) { return a; } */
namespace tessera {
namespace {
constexpr char const* text = "} not a brace {";   // { neither
constexpr auto constant = [](int a) { return a; };
auto raw = R"(
void inside_a_string() {
)";
}  // namespace
template <class T, class U = std::map<int, T>>
class Shelf final : public Base<(1 > 0)> {
 public:
  explicit Shelf(bool on) : a_{1, 2}, b_(on) {}
  ~Shelf();
  Shelf& operator=(Shelf const&) = delete;
  bool operator()(std::map<int, long> const& m, std::function<void(int, int)> f) const noexcept {
    return [&](int a, int b) { return a < b; }(1, 2);
  }
  virtual void put(int a, bool strict = true) = 0;
 private:
  void hidden(bool x);
  int a_[2] = {1, 2}, b_;
};
enum class Kind { a, b };
struct Plain { int x = 3; };
#ifdef A
int chosen(int a) {
#else
int chosen(int a, int b) {
#endif
  if (a) {
    return '}';
  }
  return 0;
}
auto trailing(std::array<int, 3> v, int (*f)(int, int)) -> std::vector<int> {
  return {};
}
}
'''


class Functions(unittest.TestCase):
    def setUp(self):
        self.found = {f.name: f for f in cpp_source.functions_of(SOURCE)}

    def test_each_function_is_found_once(self):
        self.assertEqual(sorted(self.found), sorted(["Shelf", "~Shelf", "operator=", "operator()", "put", "hidden", "chosen", "trailing"]))

    def test_parameters_are_split_at_their_own_commas(self):
        self.assertEqual(len(self.found["operator()"].parameters), 2)
        self.assertEqual(len(self.found["trailing"].parameters), 2)
        self.assertEqual(self.found["put"].parameters[1], "bool strict = true")

    def test_lengths_and_places(self):
        self.assertEqual(self.found["trailing"].lines, 3)
        self.assertEqual(self.found["operator()"].lines, 3)
        self.assertEqual(SOURCE.split("\n")[self.found["chosen"].line - 1], "int chosen(int a) {")

    def test_access(self):
        self.assertTrue(self.found["put"].public)
        self.assertFalse(self.found["hidden"].public)
        self.assertTrue(self.found["Shelf"].constructor)

    def test_includes_and_strings(self):
        self.assertEqual(cpp_source.includes_of(SOURCE), [(2, "tessera/core/error.hpp"), (3, "vector")])
        self.assertEqual([words for _, words in cpp_source.string_literals(SOURCE)], ["} not a brace {", "\nvoid inside_a_string() {\n"])


class Words(unittest.TestCase):
    def setUp(self):
        sections, correct = check_language.rules()
        self.language = check_language.Language(sections, correct)

    def test_british_spellings_are_found_in_identifiers_too(self):
        for text in ("tokenised", "Initialisation", "neighbouring_rank", "NormaliseRows", "behaviour", "centre", "labelled", "vectorises", "grey"):
            self.assertTrue(self.language.misspelled(text), text)

    def test_american_and_other_words_are_not(self):
        for text in ("tokenized", "otherwise", "raised", "precision", "noise", "advised", "promises", "neighbor", "control", "elementwise", "cancelled",
                     "MPI_Initialized", "compromised", "rising", "surprising", "revision", "our", "four", "hours", "madvise"):
            self.assertFalse(self.language.misspelled(text), text)

    def test_phrases(self):
        for text in ("is made anew", "goes on with", "bytes a parameter", "one file a rank", "is not there", "stood still for"):
            self.assertTrue(self.language.phrases(text), text)
        for text in ("allow going on as root", "a number a user gives", "per rank", "not therefore", "the formerly"):
            self.assertFalse(self.language.phrases(text), text)


if __name__ == "__main__":
    unittest.main()

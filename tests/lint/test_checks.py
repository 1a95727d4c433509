#!/usr/bin/env python3
"""Tests of the lint checks: the reader of C++ sources, the structural measures of house.py and the rules of words.txt."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import build_time
import check_language
import cpp_source
import house
import mode_branches

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
class Store {
 public:
  virtual ~Store();
  virtual bool open(int unit) = 0;
  void close(int unit) override;
 private:
  struct Entry { std::map<int, std::vector<int>> a{{1, {2}}}; int b, c = 1; } entry_;
  enum class Way { up, down } way_ = Way::up;
  static constexpr int count = 3;
  using Work = std::function<void(int, int)>;
  friend class Other;
  std::function<void(int, int)> work_, other_work_ = nullptr;
  void (*call_)(int, int) = nullptr;
  Store* next_{nullptr};
  std::optional<int> const place_ = {}, most_;
  unsigned bits_ : 3;
  std::mutex mutable_mutex_;
};
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
        self.assertEqual(sorted(self.found), sorted(["Shelf", "~Shelf", "operator=", "operator()", "put", "hidden", "~Store", "open", "close",
                                                     "chosen", "trailing"]))

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


class Classes(unittest.TestCase):
    def setUp(self):
        self.found = {c.name: c for c in cpp_source.classes_of(SOURCE)}

    def test_each_class_is_found(self):
        self.assertEqual(list(self.found), ["Shelf", "Plain", "Store", "Entry"])
        self.assertEqual(SOURCE.split("\n")[self.found["Store"].line - 1], "class Store {")

    def test_data_members(self):
        def names(of):
            return [name for _, name, _ in self.found[of].members]
        self.assertEqual(names("Shelf"), ["a_", "b_"])
        self.assertEqual(names("Entry"), ["a", "b", "c"])
        self.assertEqual(names("Store"), ["entry_", "way_", "work_", "other_work_", "call_", "next_", "place_", "most_", "bits_", "mutable_mutex_"])

    def test_virtual_functions_without_destructors_and_overrides(self):
        self.assertEqual(self.found["Store"].virtuals, ["open"])
        self.assertEqual(self.found["Shelf"].virtuals, ["put"])

    def test_structs_of_values(self):
        self.assertEqual([name for name, c in self.found.items() if c.is_plain], ["Plain", "Entry"])
        for text, is_plain in (("struct A { int a; private: int b; };", False), ("struct A { virtual ~A(); int a; };", False),
                               ("struct A : B { void f() override; int a; };", False), ("struct A { int a; int f() const { return a; } };", True)):
            self.assertEqual(cpp_source.classes_of(text)[0].is_plain, is_plain, text)


LAYERS = """tessera_add_layer(core)
tessera_add_part(zero layout USES core)
tessera_add_part(zero weights ON layout USES core)
tessera_add_part(zero gradients ON layout)
tessera_join_parts(zero)
tessera_add_part(checkpoint format USES zero_layout)
tessera_join_parts(checkpoint)
"""
CONFIG = """enum class Order { ranks, tree };
struct EngineConfig { int stage = 0; double norm = 0; bool reduce_once = false; Order sum_order = Order::ranks; std::optional<Swap> swap; };
"""


class Measures(unittest.TestCase):
    def measured(self, measure, files):
        """The values of a house of these files, after one of its measures."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {"src/CMakeLists.txt": LAYERS, "include/tessera/core/x.hpp": "#pragma once\n" * 30, **files}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            self.house = house.House(root)
            getattr(self.house, measure)()
            return self.house.values

    def assert_values(self, measure, files, expected):
        values = self.measured(measure, files)
        for name, value in expected.items():
            self.assertIn(name, house.BOUNDS)
            self.assertEqual(values[name], value, name)

    def test_members(self):
        def members(n, head="class A {"):
            return {"src/core/a.hpp": head + "".join(f" int a{i};" for i in range(n)) + " };"}
        for n, above in ((12, 0), (13, 1)):
            self.assert_values("measure_classes", members(n), {"most members of a class": n, "classes with more than 12 members": above})
        self.assert_values("measure_classes", members(13, "struct A {"), {"most members of a class": 0, "classes with more than 12 members": 0})
        self.assert_values("measure_classes", members(13, "struct A { virtual void f();"), {"classes with more than 12 members": 1})

    def test_virtual_functions(self):
        for n, above in ((12, 0), (13, 1)):
            text = "class A { public: virtual ~A(); " + "".join(f"virtual void f{i}() = 0; " for i in range(n)) + "};"
            self.assert_values("measure_classes", {"src/core/a.hpp": text}, {"most virtual functions of an interface": n, "interfaces with more than 12 virtual functions": above})
        text = "class A : public B { " + "".join(f"void f{i}() override; " for i in range(13)) + "};"
        self.assert_values("measure_classes", {"src/core/a.hpp": text}, {"most virtual functions of an interface": 0})

    def test_files_of_folders(self):
        for n, above in ((40, 0), (41, 1)):
            files = {f"src/core/a{i}.cpp": "" for i in range(n)} | {"src/core/sub/b.cpp": ""}
            self.assert_values("measure_folders", files, {"most files of a folder": n, "folders with more than 40 files": above,
                                                          "folders detail with more than 12 files": 0})
        for n, above in ((12, 0), (13, 1)):
            self.assert_values("measure_folders", {f"src/core/detail/a{i}.cpp": "" for i in range(n)}, {
                "most files of a folder detail": n, "folders detail with more than 12 files": above, "folders with more than 40 files": 0})

    def test_small_headers(self):
        for lines, percent in ((25, 50), (26, 0)):
            self.assert_values("measure_folders", {"src/core/a.hpp": "// x\n" * lines, "src/core/a.cpp": ""}, {"headers of at most 25 lines, percent": percent})

    def test_branches_on_modes(self):
        for n, above in ((12, 0), (13, 1)):
            files = {"include/tessera/zero/layout/engine_config.hpp": CONFIG, "src/zero/weights/a.cpp": "void f() {\n" + "if (config.stage > 1) g();\n" * n + "}"}
            self.assert_values("measure_modes", files, {"most mode branches of a file of zero": n, "files of zero with more than 12 mode branches": above})
        with self.assertRaises(AssertionError):   # without settings the measure would find nothing
            self.measured("measure_modes", {"src/zero/weights/a.cpp": ""})

    def test_backward_includes(self):
        header = "include/tessera/zero/{0}/{0}.hpp"
        files = {header.format(part): "" for part in ("layout", "weights", "gradients")} | {"src/zero/weights/w.hpp": ""}

        def check(name, include, backward, undeclared=0):
            self.assert_values("measure_includes", {**files, name: f'#include "{include}"\n'}, {
                "backward includes between parts": backward, "includes of undeclared layers": undeclared})
        check("src/zero/weights/a.cpp", "tessera/zero/layout/layout.hpp", 0)
        check("src/zero/weights/a.cpp", "tessera/zero/weights/weights.hpp", 0)
        check("src/zero/layout/a.cpp", "tessera/zero/weights/weights.hpp", 1)
        check("src/zero/gradients/a.cpp", "weights/w.hpp", 1)
        check("include/tessera/zero/gradients/a.hpp", "tessera/zero/weights/weights.hpp", 1)
        check("src/core/a.cpp", "tessera/zero/layout/layout.hpp", 0, undeclared=1)
        check("src/checkpoint/format/a.cpp", "tessera/zero/layout/layout.hpp", 0)
        check("src/checkpoint/format/a.cpp", "tessera/zero/weights/weights.hpp", 0, undeclared=1)

    def test_public_headers(self):
        measure = "public headers that include one that is not installed"
        shared = {"src/core/shared/y.hpp": "void call(bool ok);", "src/zero/layout/shared/z.hpp": ""}
        for name, include, found in (("include/tessera/zero/layout/a.hpp", "tessera/core/x.hpp", 0), ("include/tessera/zero/layout/a.hpp", "tessera/core/y.hpp", 1),
                                     ("src/zero/layout/shared/a.hpp", "tessera/core/y.hpp", 0), ("src/zero/weights/a.cpp", "tessera/zero/layout/z.hpp", 0)):
            self.assert_values("measure_includes", shared | {name: f'#include "{include}"\n'}, {
                measure: found, "includes of undeclared layers": 0, "backward includes between parts": 0, "include cycles": 0})
        upward = {"src/core/a.cpp": '#include "tessera/zero/layout/z.hpp"\n'}   # headers that layers share obey the layers, too
        self.assert_values("measure_includes", shared | upward, {"includes of undeclared layers": 1})
        headers = {f"include/tessera/core/h{i}.hpp": "" for i in range(4)}
        self.assert_values("measure_files", shared | headers, {"public headers": 5})   # with x.hpp

    def test_tests_are_in_the_folder_that_mirrors_their_source(self):
        sources = {"src/zero/weights/a.cpp": "", "src/zero/weights/b.cpp": "", "src/core/detail/c.cpp": "", "src/core/d.cpp": ""}
        good = {"tests/zero/weights/a.test.cpp": "", "tests/gpu/any/b.test.cpp": "", "tests/core/c.test.cpp": "", "tests/core/d.test.cpp": ""}
        bad = {"tests/zero/a.test.cpp": "", "tests/zero/gradients/b.test.cpp": "", "tests/zero/c.test.cpp": "", "tests/core/detail/d.test.cpp": ""}
        for tests, missing in ((good, 0), (bad, 4)):
            self.assert_values("measure_files", sources | tests, {"sources without a test of their name": missing})
        offenders = " ".join(place for _, place in self.house.places["sources without a test of their name"])
        self.assertIn("src/zero/weights/a.cpp: write tests/zero/weights/a.test.cpp", offenders)
        self.assertIn("src/core/detail/c.cpp: write tests/core/c.test.cpp", offenders)


class Modes(unittest.TestCase):
    STORE = """class Store { public: bool is_on_host(int unit) const { return host_ && unit < 3; } bool is_first(int unit) const { return unit == 0; }
      private: Host* host_; std::optional<Swapped> swapped_; int units_; };"""

    def branches(self, body):
        modes = mode_branches.Modes({"include/tessera/zero/engine_config.hpp": CONFIG, "src/zero/store.hpp": self.STORE,
                                     "src/zero/a.cpp": "void f() {\n" + body + "\n}\n"})
        return len(modes.branches_of("src/zero/a.cpp"))

    def test_branches_on_modes_are_counted_once(self):
        for body in ("if (config.stage > 1) g();", "if (!c.reduce_once && config.stage == 3) g();", "if (config.sum_order == Order::tree) g();",
                     "if (c.swap) g();", "if (host_) g();", "if (!swapped_ || n > 2) g();", "if (host_ == nullptr) g();", "if (state.swapped_) g();",
                     "auto* queue = host_ ? &host_->queue() : &compute;", "return swapped_ ? values(t, k)\n : region(k);",
                     "g(a, n + 1, host_ ? 1 : 2);", "if (store.is_on_host(u)) g();", "switch (config.sum_order) { case Order::tree: g(); }",
                     "if (auto* weights = std::get_if<Sharded>(&partition)) g();", "std::visit(Work{}, partition);",
                     "bool const is_swapped = swapped_ && n > 2;\nif (is_swapped) g();", "for (auto u : units) if (host_) g();",
                     "while (host_ && n > 0) g();"):
            self.assertEqual(self.branches(body), 1, body)
        self.assertEqual(self.branches("if (host_) g(); else if (config.stage == 2) h(); return swapped_ ? 1 : 2;"), 3)

    def test_other_branches_are_not(self):
        for body in ("if (n > 2) g();", "if (host_->size() > 2) g();", "if (swapped_->tiles() == units_) g();", "if (config.norm > 0) g();",
                     "if (is_first(u)) g();", 'TESSERA_VALIDATE(config.stage > 0 ? host_ : swapped_, ConfigError, "if (host_)");',
                     "host_->run(u, units_ > 2 ? 1 : 2);", "bool const is_swapped = n > 2;\nif (is_swapped) g();", "if (space == Space::stage) g();",
                     "g(host_, config.stage);", "// if (host_)", "host_ = n > 2 ? a : b;"):
            self.assertEqual(self.branches(body), 0, body)


class BuildTime(unittest.TestCase):
    def test_slow_units_are_warned_of(self):
        lines = list(build_time.report_of("16 src/CMakeFiles/a.dir/x/slow.cpp.o\n20 tests/CMakeFiles/b.dir/y.cpp.o\n15 tests/CMakeFiles/b.dir/y.cpp.o\n"))
        self.assertEqual(lines[0].split()[:1], ["31"])
        self.assertEqual([line.strip() for line in lines[1:3]], ["16 s  x/slow.cpp", "15 s  y.cpp"])
        self.assertEqual(len(lines), 4)
        self.assertIn("warning: x/slow.cpp takes 16 s", lines[3])


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

    def test_terms_that_others_replaced(self):
        for text in ("the yardstick", "each rung of it", "first settle the transfers", "a live line", "the overflow verdict", "a glance ahead"):
            self.assertTrue(self.language.phrases(text), text)

    def test_comments_that_hang_on_the_line_above(self):
        for text in ("Of one rank.", "The same for weights.", "Those of a device.", "That of this thread.", "Also after a save.", "As PEFT writes it.",
                     "As in free().", "of the rank", "the same as before"):
            self.assertTrue(self.language.fragments(text), text)
        for text in ("Offset of a shard.", "Sizes of one rank.", "That file is removed.", "As the queue is in order, no event is needed.", "Aspect ratio.",
                     "offset of the rank"):
            self.assertFalse(self.language.fragments(text), text)


class Comments(unittest.TestCase):
    def test_comments_of_sources(self):
        text = """/// Size of a file,
/// in bytes.
int a = 1;  ///< of a
            ///< and more
int b;  // "no string"
char const* c = "// no comment";
/* Of
 * two lines */
// first

// second
"""
        self.assertEqual(cpp_source.comments_of(text), [(1, "Size of a file, in bytes."), (3, "of a and more"), (5, '"no string"'), (7, "Of two lines"),
                                                        (9, "first"), (11, "second")])

    def test_comments_of_scripts(self):
        self.assertEqual(check_language.comments_of(".py", 'def f():\n    """Of one."""\n    # The same\n    # here.\n    return "# no"\n'),
                         [(2, "Of one."), (3, "The same here.")])
        self.assertEqual(check_language.comments_of(".txt", "# As here.\nset(a 1)  # of b\n"), [(1, "As here.")])
        self.assertEqual(check_language.comments_of(".txt", "# a list\nname\n"), [])


class DeviceNames(unittest.TestCase):
    def problems(self, name, text):
        with tempfile.TemporaryDirectory() as root:
            path = pathlib.Path(root, "src", name)
            path.parent.mkdir(parents=True)
            path.write_text(text)
            pathlib.Path(root, "src/CMakeLists.txt").write_text("tessera_add_layer(memory)\n")
            return subprocess.run([sys.executable, pathlib.Path(__file__).with_name("check_sources.py"), root], capture_output=True, text=True).stdout

    def test_only_adapters_name_cuda(self):
        for text in ("bool on_cuda();", "#ifdef KOKKOS_ENABLE_CUDA", "Kokkos::Cuda space;", 'f("a CUDA error");'):
            self.assertIn("is a name for adapters", self.problems("memory/queue.cpp", text), text)
            self.assertIn("follow the house rules", self.problems("memory/cuda/cuda_api.cpp", text), text)
        self.assertIn("follow the house rules", self.problems("memory/queue.cpp", 'f("CUDA_VISIBLE_DEVICES");  // CUDA orders them'))


if __name__ == "__main__":
    unittest.main()

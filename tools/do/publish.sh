# shellcheck shell=bash
# What others see of the project: the documents as pages, the wheel with its list of components, and the forms of the
# forge. The tools for these are in build/venv-publish.

publish_venv=build/venv-publish

prepare_publish_venv() {
  local wanted=tools/do/requirements-publish.txt stamp=$publish_venv/requirements.txt
  cmp -s "$wanted" "$stamp" && return
  rm -rf "$publish_venv"
  python3 -m venv "$publish_venv" &&
    "$publish_venv/bin/pip" install -r "$wanted" &&
    cp "$wanted" "$stamp"
}

# Checks that the forge and packagers will understand their files. The schemas are in the package, so nothing is
# downloaded.
check_forms() {
  local forms=.github/ISSUE_TEMPLATE
  "$publish_venv/bin/yamllint" --strict .github CITATION.cff &&
    check_schema github-workflows .github/workflows/*.yml &&
    check_schema github-issue-config $forms/config.yml &&
    check_schema github-issue-forms $forms/bug.yml $forms/feature.yml &&
    check_schema citation-file-format CITATION.cff &&
    "$publish_venv/bin/hadolint" --config packaging/hadolint.yaml packaging/Containerfile &&
    "$publish_venv/bin/python" -B tools/check_recipes.py "$(project_version)" &&
    one_version
}

# check_schema NAME FILE...
check_schema() {
  "$publish_venv/bin/check-jsonschema" --quiet --builtin-schema "vendor.$1" "${@:2}" ||
    { echo "not valid as $1: ${*:2}"; return 1; }
}

# The version is written in more than one place: as a whole, and where interfaces are compatible, its first two numbers.
one_version() {
  local version minor file found
  version=$(project_version)
  minor=${version%.*}
  grep -qx "version: $version" CITATION.cff || { echo "CITATION.cff has another version than $version"; return 1; }
  grep -q "^plait ($version) " <(head -n 1 debian/changelog) ||
    { echo "debian/changelog has another version than $version"; return 1; }
  for file in debian/control README.md docs/zh/README.md tests/consumer/project/CMakeLists.txt; do
    found=$(grep -oE '(libplait|find_package\(plait )[0-9]+\.[0-9]+' "$file" | grep -oE '[0-9.]+$' | sort -u | xargs)
    [[ $found == "$minor" ]] || { echo "$file has the version ${found:-of nothing}, not $minor"; return 1; }
  done
  [[ -e debian/libplait$minor.install ]] || { echo "debian/libplait$minor.install is missing"; return 1; }
}

project_version() { sed -nE 's/^project\(plait VERSION ([0-9.]+).*/\1/p' CMakeLists.txt; }

# Lists what the wheel is made of in a file beside it.
list_components() {
  local wheel
  wheel=$(echo build/wheelhouse/plait-*.whl)
  in_turn prepare_publish_venv &&
    "$publish_venv/bin/python" -B tools/list_components.py "$wheel" "${wheel%.whl}.cdx.json"
}

# Makes build/site from the documents where they are, with the sources that they link to, so that links need no change.
build_site() {
  local source=build/site-source
  rm -rf "$source" build/site
  mkdir -p "$source"
  ln -s ../../{docs,include,examples} "$source"
  ln -s ../../{README,CONTRIBUTING,CHANGELOG,SECURITY,CODE_OF_CONDUCT}.md "$source"
  NO_MKDOCS_2_WARNING=1 "$publish_venv/bin/mkdocs" build --strict
}

# Builds the pages, and opens some in a browser.
check_site() {
  build_site && PLAIT_SITE=$PWD/build/site PYTHONPATH=tests python3 -B tests/site/site_test.py -v
}

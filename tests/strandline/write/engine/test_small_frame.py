"""Which plans of Spark's may be evaluated for the driver, by the names of their nodes."""

from __future__ import annotations

from strandline.write.engine.small_frame import keeps_rows

FILE = "Relation [id#1,ts#2L] parquet"


def test_plans_that_keep_rows_are_known(subtests):
    for plan in [
        FILE,
        f"Project [id#1, cast(ts#2L as string) AS ts#3]\n+- Filter (ts#2L > 3)\n   +- {FILE}\n",
        f"Union false, false\n:- {FILE}\n+- LocalRelation [id#1, ts#2L]",
        f"GlobalLimit 3\n+- LocalLimit 3\n   +- {FILE}",
        f"SubqueryAlias spark_catalog.default.t\n+- View (`v`, [id#1])\n   +- {FILE}",
        "RelationV2[id#1] file:/rows.parquet",
    ]:
        with subtests.test(plan=plan):
            assert keeps_rows(plan)


OTHER_PLANS = [
    "",
    f"Generate explode(words#3), false, [word#4]\n+- {FILE}",
    f"Join Inner, (id#1 = id#5)\n:- {FILE}\n+- Relation [id#5] parquet",
    f"Project [pythonUDF0#3]\n+- BatchEvalPython [f(id#1)#2], [pythonUDF0#3]\n   +- {FILE}",
    "Project [id#1]\n+- LogicalRDD [id#1], false",
    f"MapInArrow once(id#1)#2, [id#3], false\n+- {FILE}",
    f"Sample 0.0, 3.0, true, 7\n+- {FILE}",
    f"Project [scalar-subquery#4 [] AS n#5L]\n:  +- Aggregate [count(1) AS n#6L]\n+- {FILE}",
    f"Project [id#1, a\nb AS c#3]\n+- {FILE}",
    f"Project [id#1]\n... 1 more fields\n{FILE}",
    "InMemoryRelation [id#1], StorageLevel(disk, memory)\n   +- *(1) ColumnarToRow",
]


def test_no_other_plan_counts_as_keeping_rows(subtests):
    for plan in OTHER_PLANS:
        with subtests.test(plan=plan):
            assert not keeps_rows(plan)

"""Twenty tables and two sets of measurements. What would give the target away is dropped here, and said in the notes."""
import pandas as pd

from frame import Spec
from recipe import is_value, recipe


@recipe("ames-sale-price")
def ames(src):
    return Spec(src.table("modeldata", "ames"), "Sale_Price", notes=["mixed types; many rare category levels"])


@recipe("concrete-strength")
def concrete(src):
    d = src.table("modeldata", "concrete").drop_duplicates()
    d["_mix"] = d.drop(columns=["age", "compressive_strength"]).astype(str).agg("|".join, axis=1)
    return Spec(d, "compressive_strength", group="_mix", notes=["split by recipe: the same mix at other ages would leak"])


@recipe("hotel-room-rate")
def hotel(src):
    d = src.table("modeldata", "hotel_rates").drop_duplicates().drop(columns=["historical_adr", "arrival_date_num"])
    return Spec(d[d.avg_price_per_room > 0], "avg_price_per_room", group="arrival_date", notes=[
        "split by arrival day (a split in time put all test rows in high season: the median guess beat 59% of the models)",
        "historical_adr dropped (target statistic of the same calendar day)", "agent/company/country have high cardinality"])


@recipe("meal-delivery-time")
def meals(src):
    return Spec(src.table("modeldata", "deliveries"), "time_to_delivery")


@recipe("loan-goes-bad")
def bad_loans(src):
    d = src.table("modeldata", "lending_club")
    d = d.assign(is_bad=is_value(d.Class, "bad")).drop(columns="Class")
    return Spec(d, "is_bad", train_max=3000, test_max=2000, notes=["5% positives"])


@recipe("telco-churn")
def telco(src):
    d = src.table("modeldata", "wa_churn")
    return Spec(d.assign(churned=is_value(d.churn)).drop(columns="churn"), "churned")


@recipe("callcentre-churn")
def callcentre(src):
    d = src.table("modeldata", "mlc_churn")
    return Spec(d.assign(left=is_value(d.churn)).drop(columns="churn"), "left",
                notes=["charges are linear in minutes (redundant features, no leak)"])


@recipe("staff-attrition")
def attrition(src):
    d = src.table("modeldata", "attrition")
    return Spec(d.assign(quits=is_value(d.Attrition)).drop(columns="Attrition"), "quits", test_frac=0.5)


@recipe("credit-standing")
def credit(src):
    return Spec(src.table("modeldata", "credit_data"), "Status", notes=["missing values in assets, debt, income, job"])


@recipe("cluster-job-class")
def jobs(src):
    d = src.table("modeldata", "hpc_data")
    d["run_grade"] = d.pop("class").map({"VF": 0, "F": 1, "M": 2, "L": 3}).astype(int)
    return Spec(d, "run_grade", notes=["ordinal target"])


@recipe("diamond-price")
def diamonds(src):
    return Spec(src.table("ggplot2", "diamonds").drop_duplicates(), "price", train_max=1800)


@recipe("transit-ridership")
def transit(src):
    d = src.table("modeldata", "Chicago")
    d["date"] = d["date"].astype(str)
    return Spec(d, "ridership", order="date", test_frac=0.3, train_max=2600,
                notes=["time-ordered; features are 14-day lags by construction"])


@recipe("texas-home-sales")
def texas(src):
    d = src.table("ggplot2", "txhousing")
    d = d[d.sales.notna()].drop(columns=["volume", "median", "inventory"])
    return Spec(d, "sales", order="date", test_frac=0.25, train_max=5200, test_max=1500, keep_dups=True,
                notes=["time-ordered panel, 46 cities", "volume, median and inventory dropped (functions of sales)"])


@recipe("bird-strike-effect")
def strikes(src):
    d = src.table("openintro", "birds").drop(columns=["remarks", "opid"])
    d["effect"] = d.effect.fillna("none").astype(str).str.lower().str.replace(" ", "_").str.replace("'", "")
    harmless = d[d.effect == "none"]
    d = pd.concat([d[d.effect != "none"], harmless.iloc[::max(1, len(harmless) // 2200)]]).sort_index()
    return Spec(d, "effect", train_max=2600, notes=["free-text remarks dropped (state the effect)", "no-effect rows thinned",
                                                    "high-cardinality species/operator"])


@recipe("storm-pressure")
def storms(src):
    d = src.table("dplyr", "storms").drop(columns=["category", "tropicalstorm_force_diameter", "hurricane_force_diameter"])
    d["_storm"] = d.name + d.year.astype(str)
    return Spec(d, "pressure", group="_storm", train_max=3000)


@recipe("blood-chain-survival")
def survival(src):
    d = src.table("survival", "flchain").drop(columns=["chapter"])
    d = d[d.futime > 0].rename(columns={"sample.yr": "sample_year", "flc.grp": "flc_group", "futime": "time", "death": "event"})
    return Spec(d, ["time"], extra=["event"],
                notes=["cause of death dropped (known only after death)", "censored target; event column hidden in test"])


@recipe("caravan-policy")
def caravan(src):
    d = src.table("ISLR", "Caravan")
    d["buys"] = is_value(d.pop("Purchase"))
    return Spec(d, "buys", train_max=3000, test_max=2400, notes=["feature duplicates dropped (12% of rows)"])


@recipe("package-check-time")
def checks(src):
    d = src.table("modeldata", "check_times").drop(columns=["package", "status"])
    return Spec(d[d.check_time > 0], "check_time", notes=["heavy-tailed target", "status dropped (outcome of the same run)"])


RATE_LEAKS = ["grade", "sub_grade", "installment", "balance", "paid_total", "paid_principal", "paid_interest", "paid_late_fees",
              "loan_status", "issue_month", "disbursement_method", "initial_listing_status"]


@recipe("loan-interest-rate")
def interest(src):
    d = src.table("openintro", "loans_full_schema").drop(columns=RATE_LEAKS)
    return Spec(d, "interest_rate", train_max=2500,
                notes=["grades, instalment and everything paid later dropped (functions of the rate)", "many structural NaN"])


@recipe("weather-visibility")
def visibility(src):
    d = src.table("nycflights13", "weather")
    d["low_visibility"] = (d.pop("visib") < 8).astype(int)
    d["_day"] = d.month.astype(str) + "-" + d.day.astype(str)
    return Spec(d.drop(columns=["year", "time_hour"]), "low_visibility", group="_day", train_max=3600, test_max=1800,
                notes=["split by day: the three airports see the same fog"])


@recipe("leaf-species")
def leaves(src):
    return Spec(src.table("modeldata", "leaf_id_flavia"), "species", train_max=1200, test_max=800)


@recipe("meat-spectra")
def meats(src):
    return Spec(src.table("modeldata", "meats"), ["water", "fat", "protein"], test_frac=0.5,
                notes=["small: 215 samples", "three targets"])
